"""Small models made with the package's own helpers, and what its reference evaluator says of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")

FLOAT = 1
INT64 = 7


def node(type: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> Any:
    return onnx.helper.make_node(type, list(inputs), list(outputs), **attributes)


def value(name: str, shape: Sequence[int | str | None] | None, dtype: int = FLOAT) -> Any:
    return onnx.helper.make_tensor_value_info(name, dtype, shape)


def model(
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    weights: Mapping[str, Any] | None = None,
    *,
    opset: int = 21,
    functions: Sequence[Any] = (),
    domains: Sequence[str] = (),
) -> Any:
    tensors = [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in (weights or {}).items()]
    graph = onnx.helper.make_graph(list(nodes), "graph", list(inputs), list(outputs), tensors)
    imports = [onnx.helper.make_opsetid("", opset), *(onnx.helper.make_opsetid(each, 1) for each in domains)]
    return onnx.helper.make_model(graph, opset_imports=imports, functions=list(functions))


def save(folder: Path, proto: Any, name: str = "model.onnx") -> Path:
    path = folder / name
    path.write_bytes(proto.SerializeToString())
    return path


def expected(proto: Any, feeds: Mapping[str, Any]) -> list[Any]:
    from onnx.reference import ReferenceEvaluator

    return list(ReferenceEvaluator(proto).run(None, dict(feeds)))


def image_network() -> tuple[Any, dict[str, Any]]:
    """Padding, two convolutions, a normalisation, pools, a skip, a head: and sizes computed from a dynamic batch."""
    random = np.random.default_rng(7)
    weights = {
        "w1": random.standard_normal((8, 3, 3, 3), np.float32),
        "b1": random.standard_normal(8, np.float32),
        "w2": random.standard_normal((8, 1, 3, 3), np.float32),
        "scale": random.random(8, np.float32),
        "shift": random.random(8, np.float32),
        "mean": random.random(8, np.float32),
        "var": random.random(8, np.float32) + 1,
        "w3": random.standard_normal((10, 8 * 6 * 6), np.float32),
        "b3": random.standard_normal(10, np.float32),
        "zero": np.array(0),
        "minus": np.array([-1]),
        "axes": np.array([0]),
    }
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], ["r1"]),
        node("Conv", ["r1", "w2"], ["c2"], auto_pad="SAME_UPPER", strides=[1, 1], group=8),
        node("BatchNormalization", ["c2", "scale", "shift", "mean", "var"], ["n2"]),
        node("HardSigmoid", ["n2"], ["g2"], alpha=1 / 6, beta=0.5),
        node("Mul", ["n2", "g2"], ["s2"]),
        node("Add", ["s2", "r1"], ["a2"]),
        node("MaxPool", ["a2"], ["p2"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero"], ["batch"], axis=0),
        node("Unsqueeze", ["batch", "axes"], ["batch1"]),
        node("Concat", ["batch1", "minus"], ["sizes"], axis=0),
        node("Reshape", ["p2", "sizes"], ["flat"]),
        node("Gemm", ["flat", "w3", "b3"], ["head"], transB=1),
        node("Softmax", ["head"], ["y"], axis=-1),
    ]
    proto = model(nodes, [value("x", ["batch", 3, 12, 12])], [value("y", ["batch", 10])], weights)
    return proto, {"x": random.standard_normal((2, 3, 12, 12), np.float32)}
