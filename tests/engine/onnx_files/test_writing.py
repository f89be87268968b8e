"""Graphs written as ONNX files: names, sizes, constants, refusals and files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import engine
from engine.onnx_writing import save_onnx, to_model
from engine.passes.support.rewriting import stored
from engine.pnnx import Graph, Operator
from engine.quantisation.histogram import Affine
from engine.quantisation.layers import find_layers, quantise_operators
from engine.tensor import TensorSpec


def built(*operators: Operator, shapes: Sequence[tuple[int | None, ...]] = ((1, 3),), **facts: Any) -> Any:
    """Return a built graph of operators between the inputs 0, 1, ... and the output, the last operand."""
    inputs = [Operator("pnnx.Input", f"in{k}", (), (str(k),)) for k in range(len(shapes))]
    known = {str(k): TensorSpec(shape, np.dtype(np.float32)) for k, shape in enumerate(shapes)}
    last = operators[-1].outputs[0] if operators else "0"
    graph = engine.RuntimeGraph.from_source(
        Graph([*inputs, *operators, Operator("pnnx.Output", "out0", (last,))], known, **facts)
    )
    graph.build()
    return graph


def reread(graph: engine.RuntimeGraph, folder: Path) -> engine.RuntimeGraph:
    save_onnx(graph, folder / "model.onnx")
    return engine.load(folder / "model.onnx")


RELU = Operator("F.relu", "act", ("0",), ("1",))


def test_inputs_and_outputs_keep_their_names_and_known_sizes() -> None:
    model = to_model(built(RELU))
    assert [each.name for each in model.graph.input] == ["in0"]
    assert [each.name for each in model.graph.output] == ["out0"]
    assert [dim.dim_value for dim in model.graph.output[0].type.tensor_type.shape.dim] == [1, 3]


def test_dynamic_sizes_have_the_names_of_the_file() -> None:
    graph = built(RELU, shapes=[(None, 3)], size_names={"0": ("batch", None)})
    (dim, other) = to_model(graph).graph.input[0].type.tensor_type.shape.dim
    assert (dim.dim_param, other.dim_value) == ("batch", 3)


def test_dynamic_sizes_without_a_name_get_that_of_their_axis() -> None:
    model = to_model(built(RELU, shapes=[(None, 3)]))
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "in0_0"


def test_an_input_that_is_an_output_passes_through_a_node() -> None:
    model = to_model(built())
    assert [(each.op_type, *each.input, *each.output) for each in model.graph.node] == [("Identity", "in0", "out0")]


def test_weights_become_initialisers_with_the_name_of_their_operator(tmp_path: Path) -> None:
    weight = np.arange(6, dtype=np.float32).reshape(2, 3)
    linear = Operator("nn.Linear", "fc", ("0",), ("1",), attributes={"weight": stored(weight)})
    model = to_model(built(linear))
    assert [each.name for each in model.graph.initializer] == ["fc.weight"]
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(model.graph.initializer[0]), weight)


def test_unused_operators_are_not_written() -> None:
    unused = Operator("F.sigmoid", "unused", ("0",), ("9",))
    assert [each.op_type for each in to_model(built(unused, RELU)).graph.node] == ["Relu"]


def test_all_operators_without_a_counterpart_are_named_at_once() -> None:
    graph = built(
        Operator("torch.lgamma", "first", ("0",), ("1",)),
        Operator("torch.digamma", "second", ("0",), ("2",)),
        Operator("torch.add", "sum", ("1", "2"), ("3",)),
    )
    with pytest.raises(engine.UnsupportedOperatorError) as refused:
        to_model(graph)
    assert str(refused.value) == (
        "2 operators cannot be written as ONNX: "
        "first (torch.lgamma): ONNX has no counterpart of the function 'lgamma'; "
        "second (torch.digamma): ONNX has no counterpart of the function 'digamma'"
    )


def test_an_input_of_unknown_rank_is_refused() -> None:
    source = Graph([Operator("pnnx.Input", "x", (), ("0",)), RELU, Operator("pnnx.Output", "out0", ("1",))])
    graph = engine.RuntimeGraph.from_source(source)
    graph.build()
    with pytest.raises(engine.UnsupportedOperatorError, match="is not a tensor of known rank and dtype"):
        to_model(graph)


def test_large_weights_go_to_a_file_of_their_own(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).standard_normal((500, 3), np.float32)
    graph = built(Operator("nn.Linear", "fc", ("0",), ("1",), attributes={"weight": stored(weight)}))
    made = save_onnx(graph, tmp_path / "model.onnx", largest_bytes=1000)
    assert made.data == "model.onnx.data"
    assert (tmp_path / "model.onnx").stat().st_size < 1000 < weight.nbytes <= (tmp_path / made.data).stat().st_size
    onnx.checker.check_model(tmp_path / "model.onnx")
    tensor = onnx.load(tmp_path / "model.onnx").graph.initializer[0]
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(tensor), weight)


def test_a_refused_graph_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"before")
    with pytest.raises(engine.UnsupportedOperatorError):
        save_onnx(built(Operator("torch.lgamma", "gamma", ("0",), ("1",))), path)
    assert path.read_bytes() == b"before"
    assert [each.name for each in tmp_path.iterdir()] == ["model.onnx"]


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(engine.EngineError, match="model.onnx: the file cannot be written"):
        save_onnx(built(RELU), tmp_path / "missing" / "model.onnx")


def test_names_of_operands_and_ports_do_not_collide(tmp_path: Path) -> None:
    graph = built(
        Operator("F.relu", "act", ("0",), ("out0",)),
        Operator("F.sigmoid", "second", ("out0",), ("in0",)),
        Operator("torch.neg", "third", ("in0",), ("constant",)),
    )
    onnx.checker.check_model(to_model(graph), full_check=True)
    x = [np.array([[-1, 0, 2]], np.float32)]
    expected = -1 / (1 + np.exp(-np.maximum(x[0], 0)))
    np.testing.assert_allclose(engine.Session(reread(graph, tmp_path)).run(x)[0], expected, rtol=1e-6)


def test_sizes_are_computed_by_the_file(tmp_path: Path) -> None:
    graph = built(
        Operator("Tensor.size", "size", ("0",), ("n",), {"dim": 1}),
        Operator("pnnx.Expression", "half", ("n",), ("h",), {"expr": "floor_divide(@0,2)"}),
        Operator("pnnx.Expression", "list", ("h",), ("s",), {"expr": "[2,@0,-1]"}),
        Operator("Tensor.reshape", "split", ("0", "s"), ("1",), labels=("input", "shape")),
        shapes=[(None, None)],
    )
    session = engine.Session(reread(graph, tmp_path), backend="reference")
    for rows, columns in ((3, 4), (1, 6)):
        x = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
        np.testing.assert_array_equal(session.run([x])[0], x.reshape(2, columns // 2, -1))


def quantised_linear() -> engine.RuntimeGraph:
    """Return a linear layer as ``quantize`` writes it: bytes with one scale, weights with one for each output."""
    rng = np.random.default_rng(1)
    weights = {"weight": rng.standard_normal((3, 8), np.float32), "bias": rng.standard_normal(3, np.float32)}
    attributes = {name: stored(each) for name, each in weights.items()}
    sizes = {"in_features": 8, "out_features": 3, "bias": True}
    linear = Operator("nn.Linear", "fc", ("0",), ("1",), sizes, attributes)
    (layer,) = find_layers(built(linear, shapes=[(None, 8)]))
    affine = Affine(np.float32(0.03), np.uint8(120))
    rounded = quantise_operators("0/rounded", "0", affine)
    return built(*rounded, *layer.in_int8("fc", "0/rounded", "1", affine.scale), shapes=[(None, 8)])


def test_a_quantised_layer_becomes_pairs_with_scales_for_each_output(tmp_path: Path) -> None:
    graph = quantised_linear()
    model = to_model(graph)
    onnx.checker.check_model(model, full_check=True)
    types = sorted(each.op_type for each in model.graph.node)
    assert types == ["Add", *["DequantizeLinear"] * 3, "MatMul", "QuantizeLinear"]
    stored_as = {each.name: onnx.numpy_helper.to_array(each) for each in model.graph.initializer}
    weights, bias = (each for each in model.graph.node if {*each.input} <= stored_as.keys())
    codes, scales, zeros = (stored_as[name] for name in weights.input)
    assert (codes.dtype, codes.shape, scales.shape, zeros.dtype) == (np.int8, (8, 3), (3,), np.int8)
    assert [each.i for each in weights.attribute if each.name == "axis"] == [1]
    integers, of_sums = (stored_as[name] for name in bias.input[:2])
    np.testing.assert_allclose(of_sums, scales * 0.03, rtol=1e-6)
    assert integers.dtype == np.int32
    x = [np.random.default_rng(0).standard_normal((4, 8), np.float32)]
    ours, read = (engine.Session(each, backend="reference") for each in (graph, reread(graph, tmp_path)))
    np.testing.assert_allclose(read.run(x)[0], ours.run(x)[0], rtol=1e-6)


def test_the_precision_of_products_is_left_to_the_runtime_that_reads_the_file(tmp_path: Path) -> None:
    weight = stored(np.random.default_rng(1).standard_normal((32, 64), np.float32))
    sizes = {"in_features": 64, "out_features": 32, "bias": False}
    graph, plain = (
        built(Operator("nn.Linear", "fc", ("0",), ("1",), {**sizes, **more}, {"weight": weight}), shapes=[(3, 64)])
        for more in ({"precision": "bf16"}, {})
    )
    assert to_model(graph).SerializeToString() == to_model(plain).SerializeToString()
    assert not any(op.allows_bfloat16 for op in reread(graph, tmp_path).operators)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_a_quantised_recurrent_network_keeps_its_bytes(kind: str, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    random, rows = np.random.default_rng(3), {"LSTM": 4, "GRU": 3, "RNN": 1}[kind] * 6
    codes = {f"weight_{part}_l0{end}": random.integers(-127, 128, (rows, width)).astype(np.int8)
             for part, width in (("ih", 5), ("hh", 6)) for end in ("", "_reverse")}  # fmt: skip
    scales = {name.replace("weight", "scale"): random.random(rows).astype(np.float32) / 200 for name in codes}
    params = {"input_size": 5, "hidden_size": 6, "bidirectional": True, "bias": False, "rounds": "each"}
    layer = Operator(
        f"nn.{kind}", "rnn", ("0",), ("1",), params, {name: stored(each) for name, each in (codes | scales).items()}
    )
    graph = built(layer, shapes=[(7, 2, 5)])
    save_onnx(graph, tmp_path / "model.onnx")
    model = onnx.load(tmp_path / "model.onnx")
    assert sum(each.data_type == onnx.TensorProto.INT8 for each in model.graph.initializer) == 4
    x = random.standard_normal((7, 2, 5)).astype(np.float32)
    (found,) = runtime.InferenceSession(tmp_path / "model.onnx").run(None, {"in0": x})
    (mine,) = engine.Session(graph, backend="reference", cache=None).run([x])
    np.testing.assert_allclose(found, mine, rtol=0, atol=0.03)  # it does not round the input and the state
