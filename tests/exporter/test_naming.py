"""Inputs and outputs are named in the pair as the model names them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
import exporter


def exported(model: Any, shapes: list[str], folder: Path, **more: Any) -> engine.RuntimeGraph:
    return exporter.export(model.eval(), exporter.parse_inputs(shapes), folder, **more).graph  # type: ignore[no-any-return]


def names(graph: engine.RuntimeGraph) -> list[str]:
    return [port.name for port in graph.inputs]


@pytest.mark.parametrize("level", [2, 1, 0])
def test_inputs_have_the_names_of_the_arguments_of_forward(torch: Any, tmp_path: Path, level: int) -> None:
    class Net(torch.nn.Module):  # type: ignore[misc]  # torch is not seen by the type checker
        def forward(self, image: Any, in0: Any, unused: Any = None) -> Any:
            return torch.nn.functional.relu(image) - in0 * 2, in0

    graph = exported(Net(), ["1,4", "1,4"], tmp_path, opt_level=level)
    assert names(graph) == ["image", "in0"]
    image, other = np.float32([[1, -2, 3, -4]]), np.float32([[1, 1, 1, 1]])
    session = engine.Session(graph, backend="reference")
    found = session.run({"in0": other, "image": image})
    np.testing.assert_array_equal(found[0], [[-1, -2, 1, -2]])
    np.testing.assert_array_equal(found[1], other)
    np.testing.assert_array_equal(session.run([image, other])[0], found[0])


def test_arguments_without_names_keep_their_numbers(torch: Any, tmp_path: Path) -> None:
    class Net(torch.nn.Module):  # type: ignore[misc]
        def forward(self, first: Any, *others: Any) -> Any:
            return first + others[0] * others[1]

    assert names(exported(Net(), ["1,4"] * 3, tmp_path)) == ["first", "in1", "in2"]


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_script_and_a_layer_of_pytorch_have_names_too(torch: Any, tmp_path: Path) -> None:
    assert names(exported(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()), ["1,4"], tmp_path)) == ["input"]

    class Net(torch.nn.Module):  # type: ignore[misc]
        def forward(self, tokens: Any) -> Any:
            return tokens * 2

    script = torch.jit.trace(Net(), torch.ones(1, 4))
    assert names(exported(script, ["1,4"], tmp_path / "script")) == ["tokens"]


def test_tensors_of_an_onnx_file_keep_their_names(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    pytest.importorskip("pnnx")
    helper = onnx.helper
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 4]) for name in ("image", "logits")]
    graph = helper.make_graph([helper.make_node("Relu", ["image"], ["logits"])], "g", values[:1], values[1:])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(proto, tmp_path / "net.onnx")
    made = exported(exporter.load_source(str(tmp_path / "net.onnx")), ["1,4"], tmp_path / "pair")
    assert (names(made), [port.name for port in made.outputs]) == (["image"], ["logits"])
