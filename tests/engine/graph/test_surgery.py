"""Surgery leaves a valid graph or refuses and changes nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import EngineError, GraphError, GraphState, RuntimeGraph, Session, UnsupportedOperatorError
from engine.options import Backend
from engine.pnnx import Operator
from tests.engine.graph.build import F32, built, op
from tests.engine.graph.planning.test_order import random_graphs

X = np.array([[-1.0, 2.0, -3.0]], F32)


def net() -> RuntimeGraph:
    """Return a graph of (relu(x) + 1) * 2 and relu(x)."""
    return built(
        op("pnnx.Input", "pnnx_input_0", "", "0"),
        op("nn.ReLU", "relu", "0", "1"),
        op("pnnx.Expression", "plus", "1", "2", expr="add(@0,1)"),
        op("pnnx.Expression", "twice", "2", "3", expr="mul(@0,2)"),
        op("prim::TupleConstruct", "pair", "3 1", "4"),
        op("pnnx.Output", "out", "4"),
        _0=(1, 3),
    )


def run(graph: RuntimeGraph) -> list[np.ndarray]:
    graph.build()
    return list(Session(graph).run([X]))


def negate(name: str = "neg", output: str = "n") -> Operator:
    return op("pnnx.Expression", name, "?", output, expr="neg(@0)")


RELU = np.maximum(X, 0)


def test_insert_before_changes_one_consumer_only() -> None:
    graph = net()
    graph.insert_before("plus", negate())
    np.testing.assert_array_equal(run(graph), [(1 - RELU) * 2, RELU])


def test_insert_after_changes_all_consumers() -> None:
    graph = net()
    graph.insert_after("relu", negate())
    np.testing.assert_array_equal(run(graph), [(1 - RELU) * 2, -RELU])


def test_remove_hands_the_input_on() -> None:
    graph = net()
    graph.remove("relu")
    np.testing.assert_array_equal(run(graph), [(X + 1) * 2, X])


def test_replace_keeps_the_operands() -> None:
    graph = net()
    graph.replace("twice", op("pnnx.Expression", "thrice", "", "", expr="mul(@0,3)"))
    np.testing.assert_array_equal(run(graph), [(RELU + 1) * 3, RELU])


def test_rewire_takes_another_operand() -> None:
    graph = net()
    graph.rewire("twice", 0, "1")
    np.testing.assert_array_equal(run(graph), [RELU * 2, RELU])


@pytest.mark.parametrize(("old", "new"), [("relu", "rectifier"), ("1", "rectified")])
def test_rename_changes_no_result(old: str, new: str) -> None:
    graph = net()
    graph.rename(old, new)
    np.testing.assert_array_equal(run(graph), [(RELU + 1) * 2, RELU])
    assert {each.name for each in graph.operators} | set(graph.operands) >= {new}


def test_extract_is_a_graph_of_its_own() -> None:
    graph = net()
    part = graph.extract(["1"], ["3"])
    np.testing.assert_array_equal(Session(part).run([X])[0], (X + 1) * 2)
    assert [port.spec for port in part.inputs] == [graph.operands["1"].spec]
    np.testing.assert_array_equal(run(graph), [(RELU + 1) * 2, RELU])


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda g: g.insert_before("unknown", negate()), "unknown operator: found 'unknown'"),
        (lambda g: g.insert_before("plus", negate(), 3), "'plus' has no input 3: found 1 inputs"),
        (lambda g: g.insert_after("plus", negate(), 1), "'plus' has no output 1: found 1 outputs"),
        (lambda g: g.insert_after("plus", negate("relu")), "two operators have one name: found relu"),
        (lambda g: g.insert_after("plus", negate(output="1")), "operand '1' is produced twice: found relu and neg"),
        (
            lambda g: g.insert_after("plus", op("pnnx.Expression", "neg", "?", "")),
            "neg: the new operator has no output",
        ),
        (
            lambda g: g.remove("pnnx_input_0"),
            "pnnx_input_0: inputs and outputs of the graph cannot be removed or replaced",
        ),
        (lambda g: g.replace("relu", op("nn.ReLU", "r", "", "1 2")), "the new operator does not fit: found 2 outputs"),
        (lambda g: g.rewire("plus", 0, "9"), "plus (pnnx.Expression): operand '9' is used but never produced"),
        (lambda g: g.rewire("relu", 0, "3"), "operators form a cycle"),
        (lambda g: g.rename("relu", "two words"), "a name must be one word: found 'two words'"),
        (lambda g: g.rename("unknown", "x"), "unknown operator or operand: found 'unknown'"),
        (lambda g: g.rename("relu", "plus"), "two operators have one name: found plus"),
        (lambda g: g.extract(["9"], ["3"]), "unknown operand: found '9'"),
        (lambda g: g.extract(["2"], ["4"]), "an output depends on an input that is not given: found 0"),
        (lambda g: g.extract(["2"], []), "no output is requested"),
    ],
)
def test_what_cannot_be_done_is_refused_and_changes_nothing(edit: object, message: str) -> None:
    graph = net()
    source = graph.source
    with pytest.raises(GraphError) as caught:
        edit(graph)  # type: ignore[operator]
    assert message in str(caught.value)
    assert graph.source is source
    assert graph.state is GraphState.COMPLETE


def test_an_edit_the_build_would_refuse_is_refused() -> None:
    graph = net()
    with pytest.raises(UnsupportedOperatorError):
        graph.replace("relu", op("nn.Nothing", "r"))
    np.testing.assert_array_equal(run(graph), [(RELU + 1) * 2, RELU])


def test_an_edited_graph_needs_building() -> None:
    graph = net()
    graph.remove("relu")
    assert graph.state is GraphState.NEED_BUILD


EDITS = st.tuples(
    st.sampled_from(["insert_before", "insert_after", "remove", "replace", "rewire", "rename"]),
    st.integers(0, 14),
    st.integers(0, 14),
    st.integers(0, 2),
)


@given(random_graphs(), st.lists(EDITS, max_size=6), st.sampled_from(["reference", "reference", "reference", "auto"]))
def test_any_sequence_of_edits_leaves_a_graph_that_builds_and_runs(
    operators: list[Operator], edits: list[tuple[str, int, int, int]], backend: Backend
) -> None:
    graph = built(*operators, _v0=(2, 3))
    for count, (name, which, other, index) in enumerate(edits):
        before = graph.source
        try:
            _apply(graph, name, which, other, index, count)
        except EngineError:
            assert graph.source is before
        graph.build()
    assert Session(graph, backend=backend).run([np.ones((2, 3), F32)])


def _apply(graph: RuntimeGraph, name: str, which: int, other: int, index: int, count: int) -> None:
    operators = graph.source.operators
    target = operators[which % len(operators)].name
    operands = [operand for each in operators for operand in each.outputs]
    new = op("pnnx.Expression", f"new{count}", "?", f"n{count}", expr="neg(@0)")
    if name.startswith("insert"):
        getattr(graph, name)(target, new, index)
    elif name == "remove":
        graph.remove(target)
    elif name == "replace":
        graph.replace(target, op("pnnx.Expression", f"new{count}", expr="neg(@0)"))
    elif name == "rewire":
        graph.rewire(target, index, operands[other % len(operands)])
    else:
        graph.rename(target, f"renamed{count}")
