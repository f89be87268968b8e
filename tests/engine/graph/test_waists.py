"""A waist is where one tensor is all that is read of what was before."""

from __future__ import annotations

import numpy as np

import engine
from engine.graph.waists import waists_of
from engine.pnnx import Operator
from engine.tensor import TensorSpec
from tests.engine.graph.build import F32, INPUT, built, op

PICTURE = (1, 3, 8, 8)


def found(*operators: Operator, outputs: str, **inputs: tuple[int | None, ...] | TensorSpec) -> dict[str, str]:
    """By the name of the operator behind each waist, what is passed on there."""
    ports = [op("pnnx.Output", f"out_{name}", name) for name in outputs.split()]
    graph: engine.RuntimeGraph = built(*operators, *ports, **inputs)
    waists = waists_of(graph.operators, outputs.split())
    return {graph.operators[number].name: operand.name for number, operand in waists.items()}


def relu(name: str, source: str, target: str) -> Operator:
    return op("nn.ReLU", name, source, target)


def add(name: str, sources: str, target: str) -> Operator:
    return op("pnnx.Expression", name, sources, target, expr="add(@0,@1)")


def test_each_operator_of_a_row_is_behind_one_but_those_that_read_what_the_caller_gives() -> None:
    row = found(INPUT, relu("a", "0", "1"), relu("b", "1", "2"), relu("c", "2", "3"), outputs="3", _0=PICTURE)
    assert {name: row.get(name) for name in "abc"} == {"a": None, "b": "1", "c": "2"}


def test_beside_a_residual_there_is_none() -> None:
    operators = [relu("a", "0", "1"), relu("b", "1", "2"), relu("c", "2", "3"), add("d", "1 3", "4")]
    row = found(INPUT, *operators, relu("e", "4", "5"), outputs="5", _0=PICTURE)
    assert {name: row.get(name) for name in "abcde"} == {"a": None, "b": "1", "c": None, "d": None, "e": "4"}


def test_behind_what_is_returned_there_is_none() -> None:
    operators = [relu("a", "0", "1"), relu("b", "1", "2"), relu("c", "2", "3")]
    row = found(INPUT, *operators, outputs="1 3", _0=PICTURE)
    assert {name: row.get(name) for name in "abc"} == {"a": None, "b": "1", "c": None}


def test_before_the_last_input_there_is_none() -> None:
    other = op("pnnx.Input", "pnnx_input_1", "", "9")
    operators = [relu("a", "0", "1"), relu("b", "1", "2"), other, add("c", "2 9", "3"), relu("d", "3", "4")]
    row = found(INPUT, *operators, outputs="4", _0=PICTURE, _9=PICTURE)
    assert {name: row.get(name) for name in "abcd"} == {"a": None, "b": None, "c": None, "d": "3"}


def test_a_size_that_is_read_later_is_passed_on_as_well() -> None:
    operators = [
        op("Tensor.size", "rows", "0", "1", dim=2),
        relu("a", "0", "2"),
        relu("b", "2", "3"),
        op("pnnx.Expression", "sizes", "1", "4", expr="[1,-1,@0]"),
        op("Tensor.reshape", "turned", "3 4", "5", labels=("input", "shape")),
        relu("c", "5", "6"),
    ]
    row = found(INPUT, *operators, outputs="6", _0=TensorSpec((1, 3, None, None), F32))
    assert {name: row.get(name) for name in ("b", "turned", "c")} == {"b": None, "turned": None, "c": "5"}


def test_constants_are_not_counted() -> None:
    table = op("pnnx.Attribute", "table", "", "7", data=np.ones(PICTURE, F32))
    operators = [table, relu("a", "0", "1"), relu("b", "1", "2"), add("c", "2 7", "3")]
    row = found(INPUT, *operators, outputs="3", _0=PICTURE)
    assert {name: row.get(name) for name in "bc"} == {"b": "1", "c": "2"}
