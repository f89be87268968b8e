"""Models that tests/fuzz/onnx_files.py changes: small ones of every part of the format, and ONNX's backend tests."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

import numpy as np

from tests.engine.onnx_files.models import INT64, image_network, model, node, onnx, value

BOOL: Final = 9


@cache
def built() -> dict[str, bytes]:
    """The small ones, by name."""
    return {name: make().SerializeToString() for name, make in _MAKERS.items()} | {"deep": _deep(400)}


def _deep(depth: int) -> bytes:
    """Branches in branches, deeper than the package would write."""
    graph = _field(1, _field(4, b"Neg") + _field(1, b"x") + _field(2, b"y")) + _field(12, _field(1, b"y"))
    for _ in range(depth):
        branch = _field(5, _field(1, b"then_branch") + _field(6, graph) + b"\xa0\x01\x05")
        graph = _field(1, _field(4, b"If") + _field(1, b"x") + _field(2, b"y") + branch) + _field(12, _field(1, b"y"))
    return _field(7, graph + _field(11, _field(1, b"x"))) + _field(8, b"\x10\x15")


def _field(number: int, content: bytes) -> bytes:
    length, head = len(content), bytes([number << 3 | 2])
    while length > 127:
        head += bytes([length & 127 | 128])
        length >>= 7
    return head + bytes([length]) + content


def of_the_package() -> Iterator[tuple[str, bytes]]:
    """The models of the backend tests of single operators, but for those that hold pictures."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for each in collect_testcases(None):
            yield each.name, each.model.SerializeToString()


def _branches() -> Any:
    inner = _body([node("Add", ["x", "w"], ["t"])], [], ["t"])
    other = _body([node("Relu", ["x"], ["e"])], [], ["e"])
    nodes = [
        node("ReduceSum", ["x"], ["s"], keepdims=0),
        node("Greater", ["s", "zero"], ["c"]),
        node("If", ["c"], ["y"], then_branch=inner, else_branch=other),
    ]
    weights = {"w": np.ones((2, 3), np.float32), "zero": np.float32(0)}
    return model(nodes, [value("x", ["n", 3])], [value("y", None)], weights)


def _loop() -> Any:
    turn = [node("Add", ["a", "x"], ["b"]), node("Identity", ["go"], ["on"]), node("Neg", ["b"], ["row"])]
    inputs = [value("i", [], INT64), value("go", [], BOOL), value("a", [2, 3])]
    body = _body(turn, inputs, ["on", "b", "row"])
    nodes = [node("Loop", ["count", "", "x"], ["y", "rows"], body=body)]
    outputs = [value("y", [2, 3]), value("rows", None)]
    return model(nodes, [value("x", [2, 3])], outputs, {"count": np.array(3)})


def _scan() -> Any:
    turn = [node("Mul", ["s", "r"], ["t"]), node("Sigmoid", ["t"], ["o"])]
    body = _body(turn, [value("s", [3]), value("r", [3])], ["t", "o"])
    nodes = [node("Scan", ["w", "x"], ["y", "rows"], body=body, num_scan_inputs=1)]
    return model(nodes, [value("x", ["n", 3])], [value("y", [3]), value("rows", None)], {"w": np.ones(3, np.float32)})


def _function() -> Any:
    imports = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("own", 1)]
    inner = [node("Mul", ["a", "a"], ["b"]), node("Tanh", ["b"], ["c"])]
    twice = [node("square", ["a"], ["b"], domain="own"), node("square", ["b"], ["c"], domain="own")]
    functions = [
        onnx.helper.make_function("own", "square", ["a"], ["c"], inner, imports),
        onnx.helper.make_function("own", "fourth", ["a"], ["c"], twice, imports),
    ]
    nodes = [node("fourth", ["x"], ["y"], domain="own")]
    return model(nodes, [value("x", [2, 3])], [value("y", [2, 3])], functions=functions, domains=["own"])


def _external() -> Any:
    """Its tensors lie in weights.bin, which is there."""
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Add", ["m", "b"], ["y"])]
    weights = {"w": np.ones((3, 4), np.float32), "b": np.ones(4, np.float32)}
    proto = model(nodes, [value("x", ["batch", 3])], [value("y", ["batch", 4])], weights)
    for tensor, (offset, length) in zip(proto.graph.initializer, ((0, 48), (64, 16)), strict=True):
        onnx.external_data_helper.set_external_data(tensor, "weights.bin", offset, length)
        tensor.ClearField("raw_data")
    return proto


def _texts() -> Any:
    nodes = [
        node("StringConcat", ["x", "w"], ["t"]),
        node("StringNormalizer", ["t"], ["y"], case_change_action="UPPER"),
    ]
    return model(nodes, [value("x", [2], 8)], [value("y", None, 8)], {"w": np.array(["a", "bc"], object)})


def _quantised() -> Any:
    weights = {
        "s": np.float32(0.02), "z": np.uint8(128), "w": np.arange(12, dtype=np.uint8).reshape(3, 4),
        "t": np.float32(1.0),
    }  # fmt: skip
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("QLinearMatMul", ["q", "s", "z", "w", "s", "z", "t", "z"], ["p"]),
        node("DequantizeLinear", ["p", "t", "z"], ["y"]),
    ]
    return model(nodes, [value("x", [2, 3])], [value("y", [2, 4])], weights)


def _sizes() -> Any:
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Slice", ["shape", "two", "four"], ["space"]),
        node("Mul", ["space", "twos"], ["larger"]),
        node("Concat", ["lead", "larger"], ["sizes"], axis=0),
        node("Resize", ["x", "", "", "sizes"], ["r"], mode="linear"),
        node("Pad", ["r", "pads"], ["p"]),
        node("Split", ["p", "parts"], ["a", "b"], axis=1),
        node("Gather", ["a", "places"], ["g"], axis=2),
        node("TopK", ["g", "one"], ["y", "at"]),
    ]
    weights = {
        "two": np.array([2]), "four": np.array([4]), "twos": np.array([2, 2]), "lead": np.array([1, 3]),
        "one": np.array([1]), "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "parts": np.array([2, 1]),
        "places": np.array([0, -1]),
    }  # fmt: skip
    return model(nodes, [value("x", [1, 3, "h", "w"])], [value("y", None)], weights)


def _sparse() -> Any:
    values = onnx.numpy_helper.from_array(np.array([1.5, 2.5], np.float32), "w")
    indices = onnx.numpy_helper.from_array(np.array([1, 5]), "w_at")
    proto = model([node("MatMul", ["x", "w"], ["y"])], [value("x", [2, 3])], [value("y", [2, 2])])
    proto.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, indices, [3, 2]))
    return proto


def _narrow() -> Any:
    """Elements of four bits, of float8, and numbers in typed fields."""
    nodes = [node("Cast", [name], [f"{name}f"], to=1) for name in ("i", "e", "h")]
    nodes += [node("Sum", ["x", "if", "ef", "hf"], ["y"])]
    proto = model(nodes, [value("x", [5])], [value("y", [5])])
    kinds = {"i": onnx.TensorProto.INT4, "e": onnx.TensorProto.FLOAT8E4M3FN, "h": onnx.TensorProto.FLOAT16}
    for name, kind in kinds.items():
        proto.graph.initializer.append(onnx.helper.make_tensor(name, kind, [5], [1, 2, 3, 4, 5]))
    return proto


def _large() -> Any:
    """A tensor that is not parsed but viewed."""
    weights = {"w": np.ones((40, 30), np.float32), "v": np.ones((30, 30), np.float16)}
    nodes = [
        node("Gemm", ["x", "w"], ["m"], transB=1),
        node("Cast", ["v"], ["f"], to=1),
        node("MatMul", ["x", "f"], ["n"]),
        node("Concat", ["m", "n"], ["y"], axis=1),
    ]
    return model(nodes, [value("x", ["batch", 30])], [value("y", ["batch", 70])], weights)


def _body(nodes: list[Any], inputs: list[Any], outputs: list[str]) -> Any:
    return onnx.helper.make_graph(nodes, "body", inputs, [value(name, None) for name in outputs])


_MAKERS: Final[dict[str, Callable[[], Any]]] = {
    "image": lambda: image_network()[0], "branches": _branches, "loop": _loop, "scan": _scan, "function": _function,
    "external": _external, "texts": _texts, "quantised": _quantised, "sizes": _sizes, "sparse": _sparse,
    "narrow": _narrow, "large": _large,
}  # fmt: skip
