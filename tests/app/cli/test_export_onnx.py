"""``export-onnx``: a model of the store as an ONNX file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import engine
from app.cli import main
from engine.pnnx import Graph, Operator
from engine.tensor import TensorSpec


def test_the_file_computes_what_the_model_computes(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export-onnx", "linear", "linear.onnx"]) == 0
    assert capsys.readouterr().out.startswith("linear.onnx: 1 node of operator set ")
    onnx.checker.check_model("linear.onnx", full_check=True)
    model = engine.load(store / "linear/1/model.pnnx.param")
    inputs = [np.linspace(-1, 1, 3, dtype=np.float32).reshape(model.inputs[0].spec.sizes)]
    ours, read = (engine.Session(each, backend="reference") for each in (model, engine.load("linear.onnx")))
    np.testing.assert_allclose(read.run(inputs)[0], ours.run(inputs)[0], rtol=1e-6)


def test_any_batch_makes_the_first_dimension_dynamic(store: Path) -> None:
    assert main(["export-onnx", "linear", "linear.onnx", "--any-batch"]) == 0
    shape = onnx.load("linear.onnx").graph.input[0].type.tensor_type.shape.dim
    assert shape[0].dim_param


def test_another_suffix_is_a_wrong_call(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export-onnx", "linear", "linear.pnnx"]) == 2
    assert "expected a name that ends in .onnx" in capsys.readouterr().err


def test_operators_without_a_counterpart_are_listed_and_nothing_is_written(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    operators = [
        Operator("pnnx.Input", "in0", (), ("0",)),
        Operator("torch.lgamma", "gamma", ("0",), ("1",)),
        Operator("pnnx.Output", "out0", ("1",)),
    ]
    engine.RuntimeGraph.from_source(Graph(operators, {"0": TensorSpec((1, 3), np.dtype(np.float32))})).save(
        "gamma.pnnx.param", "gamma.pnnx.bin"
    )
    assert main(["export-onnx", "gamma.pnnx.param", "gamma.onnx"]) == 1
    assert "gamma (torch.lgamma)" in capsys.readouterr().err
    assert not Path("gamma.onnx").exists()
