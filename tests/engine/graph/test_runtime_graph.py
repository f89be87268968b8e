"""The graph from file to runnable: states, edges, order, shapes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import engine
from engine import (
    GraphError,
    GraphState,
    ParameterError,
    RuntimeGraph,
    Session,
    ShapeError,
    TensorSpec,
    UnsupportedOperatorError,
)
from tests.engine.graph.build import F32, INPUT, built, graph, op

X = np.array([[1.0, -2.0, 3.0]], F32)
OUTPUT = op("pnnx.Output", "pnnx_output_0", "1")
RELU = op("nn.ReLU", "relu", "0", "1")


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    paths = tmp_path / "net.pnnx.param", tmp_path / "net.pnnx.bin"
    built(INPUT, RELU, OUTPUT, _0=(1, 3)).save(*paths)
    return paths


def test_states_follow_init_and_build(pair: tuple[Path, Path]) -> None:
    fresh = RuntimeGraph(*pair)
    states = [fresh.state]
    fresh.init()
    states.append(fresh.state)
    fresh.build()
    states.append(fresh.state)
    assert states == [GraphState.NEED_INIT, GraphState.NEED_BUILD, GraphState.COMPLETE]


def test_init_and_build_are_idempotent(pair: tuple[Path, Path]) -> None:
    fresh = RuntimeGraph(*pair)
    for _ in range(2):
        fresh.init()
        operators = fresh.source.operators
    for _ in range(2):
        fresh.build()
    assert fresh.source.operators is operators
    assert fresh.state is GraphState.COMPLETE


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        ((), "the graph cannot run yet: found NEED_INIT, expected init() and build() before this"),
        (("init",), "the graph cannot run yet: found NEED_BUILD, expected build() before this"),
    ],
)
def test_running_too_early_says_what_to_call(pair: tuple[Path, Path], prepare: tuple[str, ...], message: str) -> None:
    fresh = RuntimeGraph(*pair)
    for step in prepare:
        getattr(fresh, step)()
    with pytest.raises(GraphError) as caught:
        Session(fresh)
    assert str(caught.value) == message


def test_building_before_reading_says_what_to_call(pair: tuple[Path, Path]) -> None:
    with pytest.raises(GraphError, match=r"not read yet: found NEED_INIT, expected init\(\) before this"):
        RuntimeGraph(*pair).build()


def test_load_does_all_three(pair: tuple[Path, Path]) -> None:
    np.testing.assert_array_equal(Session(engine.load(*pair)).run([X])[0], np.maximum(X, 0))


def test_a_failed_build_leaves_the_graph_as_it_was() -> None:
    broken = graph(INPUT, op("nn.Relu", "relu", "0", "1"), OUTPUT)
    with pytest.raises(UnsupportedOperatorError):
        broken.build()
    assert broken.state is GraphState.NEED_BUILD


def test_a_value_used_twice_by_one_operator_is_two_edges() -> None:
    net = built(INPUT, op("torch.cat", "cat", "0 0", "1", dim=1), OUTPUT, _0=(1, 3))
    assert [op.name for op in net.operands["0"].consumers] == ["cat", "cat"]
    np.testing.assert_array_equal(Session(net).run([X])[0], np.hstack([X, X]))


def test_operators_with_several_outputs_feed_by_operand() -> None:
    net = built(
        INPUT,
        op("torch.split", "split", "0", "1 2 3", split_size_or_sections=1, dim=1),
        op("torch.cat", "cat", "3 1", "4", dim=1),
        op("pnnx.Output", "out", "4"),
        _0=(1, 3),
    )
    np.testing.assert_array_equal(Session(net).run([X])[0], [[3.0, 1.0]])


def test_order_does_not_depend_on_the_files_order() -> None:
    net = built(OUTPUT, RELU, INPUT, _0=(1, 3))
    assert [op.name for op in net.operators] == ["pnnx_input_0", "relu", "pnnx_output_0"]
    assert [op.index for op in net.operators] == [0, 1, 2]


def test_a_cycle_is_named() -> None:
    with pytest.raises(GraphError, match="operators form a cycle: found [ab] -> [ab] -> [ab]"):
        built(INPUT, op("torch.cat", "a", "0 2", "1"), op("nn.ReLU", "b", "1", "2"), OUTPUT)


def test_an_operand_that_is_never_made_is_named() -> None:
    with pytest.raises(GraphError, match=r"relu \(nn.ReLU\): operand '9' is used but never produced"):
        built(INPUT, op("nn.ReLU", "relu", "9", "1"), OUTPUT)


def test_an_operand_with_two_makers_is_named() -> None:
    with pytest.raises(GraphError, match="operand '1' is produced twice: found a and b, expected one operator"):
        built(INPUT, op("nn.ReLU", "a", "0", "1"), op("nn.ReLU", "b", "0", "1"), OUTPUT)


def test_two_operators_with_one_name_are_refused() -> None:
    with pytest.raises(GraphError, match="two operators have one name: found a"):
        built(INPUT, op("nn.ReLU", "a", "0", "1"), op("nn.ReLU", "a", "1", "2"), OUTPUT)


def test_a_parameter_error_names_operator_and_type() -> None:
    with pytest.raises(ParameterError, match=r"^leaky \(nn.LeakyReLU\): unknown parameter 'slope'"):
        built(INPUT, op("nn.LeakyReLU", "leaky", "0", "1", slope=1), OUTPUT)


def test_a_shape_error_names_operator_and_type() -> None:
    with pytest.raises(ShapeError, match=r"^cat \(torch.cat\): "):
        built(INPUT, op("torch.cat", "cat", "0 0", "1", dim=7), OUTPUT, _0=(1, 3))


def test_computed_shapes_are_held_against_the_files() -> None:
    net = built(INPUT, RELU, OUTPUT, _0=(1, 3), _1=(1, 4))
    assert [str(warning) for warning in net.warnings] == [
        "relu (nn.ReLU): operand '1' is [1, 3] float32, the file says [1, 4] float32; possible cause: a slice on a "
        "dynamic dimension is dropped; export it with a bound taken from the size"
    ]


def test_a_strict_build_refuses_what_would_be_warnings() -> None:
    net = graph(INPUT, RELU, op("nn.ReLU", "again", "1", "2"), op("pnnx.Output", "out", "2"), _0=(3,), _1=(4,), _2=(5,))
    with pytest.raises(GraphError, match=r"^relu \(nn.ReLU\): operand '1' contradicts .* \(and 1 more like it\): "):
        net.build(strict=True)
    assert net.state is GraphState.NEED_BUILD
    net.build()
    assert len(net.warnings) == 2


def test_a_strict_build_also_judges_a_graph_that_is_built() -> None:
    net = built(INPUT, RELU, OUTPUT, _0=(1, 3), _1=(1, 4))
    with pytest.raises(GraphError, match="operand '1' contradicts the file: found"):
        net.build(strict=True)


def test_a_sound_graph_passes_a_strict_load(pair: tuple[Path, Path]) -> None:
    assert engine.load(*pair, strict=True).state is GraphState.COMPLETE


def test_a_known_loss_of_the_converter_is_named() -> None:
    spec = TensorSpec((3,), np.dtype(np.int64))
    net = built(INPUT, op("pnnx.Expression", "div", "0", "1", expr="mul(@0,1)"), OUTPUT, _0=spec, _1=(3,))
    assert [warning.cause for warning in net.warnings] == [
        "multiplying integers by 1.0, or dividing them by 1, is dropped although it changes the dtype"
    ]


def test_inputs_are_named_by_their_number_not_their_place() -> None:
    net = built(
        op("pnnx.Input", "pnnx_input_1", "", "b"),
        op("pnnx.Input", "pnnx_input_0", "", "a"),
        op("torch.cat", "cat", "a b", "c", dim=0),
        op("pnnx.Output", "out", "c"),
        _a=(1, 3),
        _b=(2, 3),
    )
    assert [(port.name, port.operand, port.aliases) for port in net.inputs] == [
        ("a", "a", ("in0", "pnnx_input_0")),
        ("b", "b", ("in1", "pnnx_input_1")),
    ]


@pytest.mark.parametrize(
    ("inputs", "named"),
    [
        (
            [("pnnx_input_0", "0"), ("pnnx_input_1", "1")],
            [("in0", ("0", "pnnx_input_0")), ("in1", ("1", "pnnx_input_1"))],
        ),
        ([("pnnx_input_0", "image")], [("image", ("in0", "pnnx_input_0"))]),
        ([("image", "0")], [("image", ("in0", "0"))]),
        # A hole in the numbering: a name of the file is never another port's alias.
        ([("in1", "0"), ("in2", "1")], [("in1", ("in0", "0")), ("in2", ("1",))]),
        ([("pnnx_input_0", "in1"), ("pnnx_input_1", "in0")], [("in1", ("pnnx_input_0",)), ("in0", ("pnnx_input_1",))]),
    ],
)
def test_inputs_have_the_names_of_the_file(
    inputs: list[tuple[str, str]], named: list[tuple[str, tuple[str, ...]]]
) -> None:
    sources = [op("pnnx.Input", name, "", operand) for name, operand in inputs]
    last = inputs[-1][1]
    net = built(*sources, op("nn.ReLU", "relu", last, "9"), op("pnnx.Output", "out", "9"), **{f"_{last}": (1, 3)})
    assert [(port.name, port.aliases) for port in net.inputs] == named
    for index, (name, aliases) in enumerate(named):
        for each in (name, *aliases):
            values = {other: X * 0 for other, _ in named} | {name: X}
            values[each] = values.pop(name)
            expected = np.maximum(X, 0) if index == len(named) - 1 else X * 0
            np.testing.assert_array_equal(Session(net, backend="reference").run(values)[0], expected)


@pytest.mark.parametrize(
    ("outputs", "named"),
    [
        (["8", "9"], [("out0", ("8",)), ("out1", ("9",))]),
        (["logits", "9"], [("logits", ("out0",)), ("out1", ("9",))]),
        (["out1", "out0"], [("out1", ()), ("out0", ())]),
        (["logits", "logits"], [("out0", ()), ("out1", ())]),
    ],
)
def test_outputs_have_the_names_of_the_file(outputs: list[str], named: list[tuple[str, tuple[str, ...]]]) -> None:
    made = [op("nn.ReLU", f"relu{index}", "0", name) for index, name in enumerate(dict.fromkeys(outputs))]
    ends = [op("pnnx.Output", f"pnnx_output_{index}", name) for index, name in enumerate(outputs)]
    net = built(INPUT, *made, *ends)
    assert [(port.name, port.aliases) for port in net.outputs] == named
    assert Session(net, backend="reference").run([X]).names == tuple(name for name, _ in named)


def test_nested_results_come_flat_and_in_order() -> None:
    net = built(
        INPUT,
        RELU,
        op("prim::TupleConstruct", "inner", "1 0", "2"),
        op("prim::TupleConstruct", "outer", "0 2", "3"),
        op("pnnx.Output", "out", "3"),
        _0=(1, 3),
    )
    outputs = Session(net).run([X])
    assert [port.name for port in net.outputs] == list(outputs.names) == ["out0", "out1", "out2"]
    for found, expected in zip(outputs, [X, np.maximum(X, 0), X], strict=True):
        np.testing.assert_array_equal(found, expected)


def test_describe_is_plain_data() -> None:
    import json

    net = built(INPUT, op("pnnx.Expression", "e", "0", "1", expr="mul(add(@0,1),2)"), OUTPUT, _0=(1, 3))
    text = json.loads(json.dumps(net.describe()))
    assert [op["type"] for op in text["operators"]] == ["pnnx.Input", "pnnx.Expression", "pnnx.Output"]
    assert text["operators"][1]["expression"] == "(@0 + 1) * 2"
    assert text["operands"]["0"] == {
        "producer": "pnnx_input_0",
        "consumers": ["e"],
        "shape": [1, 3],
        "dtype": "float32",
    }
    assert text["totals"]["operators"] == 3
