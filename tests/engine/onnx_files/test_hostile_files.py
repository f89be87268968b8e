"""Whatever a file holds, it is read or refused with an EngineError: no crash, no hang, no read outside of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from tests.engine.onnx_files.models import expected, image_network, model, node, onnx, save, value


def test_a_mutated_file_is_read_or_refused(tmp_path: Path) -> None:
    content = image_network()[0].SerializeToString()
    dice = random.Random(3)
    refused = 0
    for _ in range(150):
        mangled = bytearray(content)
        for _ in range(dice.randrange(1, 4)):
            place = dice.randrange(len(mangled))
            kind = dice.randrange(4)
            if kind == 0:
                mangled[place] = dice.randrange(256)
            elif kind == 1:
                del mangled[place : place + dice.randrange(1, 40)]
            elif kind == 2:
                mangled[place:place] = bytes(dice.randrange(256) for _ in range(dice.randrange(1, 9)))
            else:
                del mangled[place:]
            if not mangled:
                break
        path = tmp_path / "m.onnx"
        path.write_bytes(bytes(mangled))
        try:
            engine.load(path)
        except engine.EngineError as error:
            refused += 1
            assert str(tmp_path) not in str(error)
    assert refused


def test_every_short_beginning_of_a_file_is_refused(tmp_path: Path) -> None:
    content = image_network()[0].SerializeToString()
    for length in (0, 1, 2, 3, 17, 100, len(content) // 2, len(content) - 1):
        path = tmp_path / "m.onnx"
        path.write_bytes(content[:length])
        with pytest.raises(engine.EngineError):
            engine.load(path)


def _weight(change: Callable[[Any], None]) -> Any:
    proto = model(
        [node("Add", ["x", "w"], ["y"])], [value("x", [4])], [value("y", [4])], {"w": np.zeros(4, np.float32)}
    )
    change(proto.graph.initializer[0])
    return proto


def _dims(*sizes: int) -> Callable[[Any], None]:
    def change(tensor: Any) -> None:
        del tensor.dims[:]
        tensor.dims.extend(sizes)

    return change


def _external(offset: int, length: int) -> Callable[[Any], None]:
    def change(tensor: Any) -> None:
        onnx.external_data_helper.set_external_data(tensor, "m.onnx", offset, length)
        tensor.ClearField("raw_data")

    return change


WEIGHTS: dict[str, Callable[[Any], None]] = {
    "more elements than bytes": _dims(5),
    "fewer elements than bytes": _dims(3),
    "a negative size": _dims(-4),
    "a product beyond 64 bits": _dims(2**62, 2**62),
    "a product that wraps to four": _dims(2**62 + 1, 4),
    "too many axes": _dims(*(1,) * 65, 4),
    "an unknown data type": lambda tensor: setattr(tensor, "data_type", 99),
    "no data type": lambda tensor: setattr(tensor, "data_type", 0),
    "strings it has not": lambda tensor: setattr(tensor, "data_type", 8),
    "bytes behind the end of another file": _external(0, 1 << 40),
    "an offset behind the end of another file": _external(1 << 40, 16),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_tensor_that_lies_about_itself_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(engine.EngineError, match=r"model\.onnx.*'w'"):
        (tmp_path / "m.onnx").write_bytes(bytes(8))
        engine.load(save(tmp_path, _weight(WEIGHTS[name])))


def _graph(nodes: list[Any], **changes: Any) -> Any:
    return model(nodes, [value("x", [2, 3])], [value("y", [2, 3])], **changes)


GRAPHS: dict[str, Callable[[], Any]] = {
    "a circle": lambda: _graph([node("Add", ["x", "b"], ["y"]), node("Relu", ["y"], ["b"])]),
    "an undefined value": lambda: _graph([node("Relu", ["z"], ["y"])]),
    "a value made twice": lambda: _graph([node("Relu", ["x"], ["y"]), node("Abs", ["x"], ["y"])]),
    "an undefined output": lambda: _graph([node("Relu", ["x"], ["z"])]),
    "an axis out of range": lambda: _graph([node("Softmax", ["x"], ["y"], axis=2**62)]),
    "an attribute of another kind": lambda: _graph([node("Softmax", ["x"], ["y"], axis="last")]),
    "no inputs": lambda: _graph([node("Add", [], ["y"])]),
    "too many outputs": lambda: _graph([node("Relu", ["x"], ["y", "z"])]),
    "a window larger than memory": lambda: model(
        [node("MaxPool", ["x"], ["y"], kernel_shape=[2**40, 2**40], pads=[2**39] * 4)],
        [value("x", [1, 1, 4, 4])], [value("y", None)],
    ),
    "a fill larger than memory": lambda: model(
        [node("ConstantOfShape", ["s"], ["y"])], [], [value("y", None)], {"s": np.array([2**40, 2**20])}
    ),
    "a padding larger than memory": lambda: model(
        [node("Pad", ["x", "p"], ["y"])], [value("x", [2, 3])], [value("y", None)],
        {"p": np.array([2**50, 2**50, 2**50, 2**50])},
    ),
    "an operator set of the future": lambda: _graph([node("Relu", ["x"], ["y"])], opset=10_000),
    "an operator set that is none": lambda: _graph([node("Relu", ["x"], ["y"])], opset=-3),
}  # fmt: skip


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_that_cannot_be_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(engine.EngineError, match=r"model\.onnx"):
        engine.load(save(tmp_path, GRAPHS[name]()))


def test_shapes_that_lie_change_no_answer(tmp_path: Path) -> None:
    """The engine follows shapes itself: what the file says of values in between counts only where nothing else does."""
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Softmax", ["m"], ["y"], axis=-1)]
    weight = np.arange(12, dtype=np.float32).reshape(3, 4) / 10
    proto = model(nodes, [value("x", [2, 3])], [value("y", [2, 4])], {"w": weight})
    proto.graph.value_info.append(value("m", [7, 7, 7]))
    feeds = {"x": np.ones((2, 3), np.float32)}
    for backend in ("reference", "compiled"):
        (found,) = engine.Session(engine.load(save(tmp_path, proto)), backend=backend).run(feeds)  # type: ignore[arg-type]
        np.testing.assert_allclose(found, expected(proto, feeds)[0], rtol=1e-5)


@pytest.mark.parametrize(("content", "said"), [
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 1\n", "Git LFS"),
    (b"<!DOCTYPE html><html>Not found</html>", "a web page"), (b"", "an empty file"), (b"PK\x03\x04", "a zip archive"),
])  # fmt: skip
def test_what_people_have_in_place_of_a_model_is_called_what_it_is(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(engine.EngineError, match=said):
        engine.load(path)


def test_a_function_that_calls_itself_is_named_once(tmp_path: Path) -> None:
    imports = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("own", 1)]
    calls = [node("Again", ["a"], ["b"], domain="own")]
    ring = onnx.helper.make_function("own", "Again", ["a"], ["b"], calls, imports)
    proto = model(
        [node("Again", ["x"], ["y"], domain="own")],
        [value("x", [2])],
        [value("y", None)],
        functions=[ring],
        domains=["own"],
    )
    with pytest.raises(engine.EngineError, match="'Again' calls itself") as error:
        engine.load(save(tmp_path, proto))
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("names", [("x", "x"), ("x", "")])
def test_inputs_are_one_of_a_name(tmp_path: Path, names: tuple[str, str]) -> None:
    proto = model([node("Relu", ["x"], ["y"])], [value(each, [2]) for each in names], [value("y", None)])
    with pytest.raises(engine.EngineError, match="occurs twice, or has no name"):
        engine.load(save(tmp_path, proto))


def test_names_in_any_alphabet_are_kept_in_a_pair_as_well(tmp_path: Path) -> None:
    nodes = [node("Relu", ["/输入/x:0"], ["выход/y"])]
    graph = engine.load(save(tmp_path, model(nodes, [value("/输入/x:0", [2])], [value("выход/y", None)])))
    graph.save(tmp_path / "m.param", tmp_path / "m.bin")
    x = np.array([-1, 1], np.float32)
    for each in (graph, engine.load(tmp_path / "m.param", tmp_path / "m.bin")):
        assert [port.operand for port in (*each.inputs, *each.outputs)] == ["/输入/x:0", "выход/y"]
        np.testing.assert_array_equal(engine.Session(each, backend="reference").run({"/输入/x:0": x})[0], [0, 1])
