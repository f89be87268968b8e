"""Operators that take constants alone: they are computed when the file is read, or stay where that fails."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from engine.errors import EngineError
from tests.engine.onnx_files.models import expected, model, node, save, value

onnx = pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")

FLOAT, INT64, STRING, FLOAT8, INT4 = 1, 7, 8, 17, 22
ONE = {"value": onnx.numpy_helper.from_array(np.ones(1, np.float32))}
IMAGE, SIGNAL = np.ones((1, 1, 4, 4), np.float32), np.ones((1, 1, 6), np.float32)
SQUARE, ROW = np.ones((1, 1, 3, 3), np.float32), np.ones((1, 1, 3), np.float32)

# What makes the constant ``c`` of constants: operators, weights.
MADE: list[tuple[list[Any], dict[str, Any]]] = [
    ([node("Conv", ["a", "w"], ["c"], pads=[1] * 4)], {"a": IMAGE, "w": SQUARE}),
    ([node("Conv", ["a", "w", "b"], ["c"])], {"a": SIGNAL, "w": ROW, "b": np.ones(1, np.float32)}),
    ([node("ConstantOfShape", ["s"], ["a"], **ONE), node("Conv", ["a", "w"], ["c"])], {"s": [1, 1, 4], "w": ROW}),
    ([node("ConvTranspose", ["a", "w"], ["c"], strides=[2, 2])], {"a": IMAGE, "w": SQUARE}),
    ([node("AveragePool", ["a"], ["c"], kernel_shape=[2, 2])], {"a": IMAGE}),
    ([node("MaxPool", ["a"], ["c"], kernel_shape=[2])], {"a": SIGNAL}),
    ([node("LpPool", ["a"], ["c"], kernel_shape=[2, 2])], {"a": IMAGE}),
    ([node("InstanceNormalization", ["a", "v", "v"], ["c"])], {"a": IMAGE, "v": np.ones(1, np.float32)}),
    ([node("LSTM", ["a", "w", "w"], ["", "c"], hidden_size=1)],
     {"a": np.ones((2, 1, 1), np.float32), "w": np.ones((1, 4, 1), np.float32)}),
    ([node("Cast", ["a"], ["c"], to=FLOAT)], {"a": np.array(["2.5", "-1e3"], object)}),
    ([node("Cast", ["a"], ["q"], to=FLOAT8), node("Cast", ["q"], ["c"], to=FLOAT)], {"a": np.float32([2.3, 600])}),
]  # fmt: skip


@pytest.mark.parametrize("backend", ["reference", "compiled"])
@pytest.mark.parametrize(("nodes", "weights"), MADE, ids=lambda each: each[0].op_type if type(each) is list else "")
def test_what_constants_make_is_computed(
    nodes: Sequence[Any], weights: dict[str, Any], backend: Any, tmp_path: Path
) -> None:
    made = model([*nodes, node("Mul", ["x", "c"], ["y"])], [value("x", [1])], [value("y", None)], weights)
    feeds = {"x": np.full(1, 0.5, np.float32)}
    (found,) = engine.Session(engine.load(save(tmp_path, made)), backend=backend, cache=None).run(feeds)
    np.testing.assert_allclose(found, expected(made, feeds)[0], rtol=1e-5)


def test_weights_of_four_bits_are_cast_when_the_file_is_read(tmp_path: Path) -> None:
    nodes = [node("Cast", ["q"], ["w"], to=FLOAT), node("MatMul", ["x", "w"], ["y"])]
    made = model(nodes, [value("x", [1, 2])], [value("y", None)])
    made.graph.initializer.append(onnx.helper.make_tensor("q", INT4, [2, 2], [-8, 7, -1, 3]))
    graph = engine.load(save(tmp_path, made))
    assert [op.type for op in graph.operators] == ["pnnx.Input", "nn.Linear", "pnnx.Output"]
    (y,) = engine.Session(graph, backend="reference").run([np.float32([[1, 2]])])
    assert y.tolist() == [[-10, 13]]


def test_a_constant_that_cannot_be_computed_fails_in_a_run_at_its_place(tmp_path: Path) -> None:
    nodes = [node("Cast", ["a"], ["c"], to=FLOAT, name="number"), node("Mul", ["x", "c"], ["y"])]
    made = model(nodes, [value("x", [1])], [value("y", None)], {"a": np.array(["two"], object)})
    session = engine.Session(engine.load(save(tmp_path, made)), backend="reference")
    with pytest.raises(EngineError, match="number.*a text is not a number"):
        session.run([np.ones(1, np.float32)])


@pytest.mark.parametrize("nodes", [[], [node("Identity", ["text"], ["l"])], [node("Gather", ["text", "i"], ["l"])]],
                         ids=["itself", "Identity", "Gather"])  # fmt: skip
def test_a_constant_of_text_leaves_the_rest_compiled(nodes: Sequence[Any], tmp_path: Path) -> None:
    texts = np.array(["none", "some", "all"], object)
    largest = [node("Relu", ["x"], ["y"]), node("ArgMax", ["y"], ["i"], axis=0, keepdims=0)]
    outputs = [value("y", None), value("l" if nodes else "text", None, STRING)]
    made = model([*largest, *nodes], [value("x", [3])], outputs, {"text": texts})
    feeds = {"x": np.float32([-1, 3, 2])}
    session = engine.Session(engine.load(save(tmp_path, made)), backend="compiled", cache=None)
    for found, wanted in zip(session.run(feeds), expected(made, feeds), strict=True):
        assert found.tolist() == np.asarray(wanted).tolist()
