"""Element-wise operators in a row become one expression of the same bits, where that computes nothing twice."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

from engine import EngineError, RuntimeGraph, TensorSpec, registry
from engine.expression import format
from engine.graph import execute
from engine.layers.elementwise.functions import Binary, Unary
from engine.passes.expression_fusion import LONGEST, WIDEST, expression_fusion
from engine.passes.support.expressions import tree_of
from engine.passes.support.facts import Facts
from engine.pnnx import Operator
from tests.engine.graph.build import F32, INPUT, built, op
from tests.engine.passes.applying import applied, assert_answers, assert_untouched, expressions, names

SPECIAL = np.array([[0.0, -0.0, 1.0, -1.5, 7.0], [np.inf, -np.inf, np.nan, 1e-30, -3.0]], F32)


def row(*operators: Operator, shape: Any = (2, 5), dtype: Any = F32) -> RuntimeGraph:
    """Operators in a row, each fed by the one before."""
    fed = [op(each.type, each.name, str(k), str(k + 1), **each.params) for k, each in enumerate(operators)]
    return built(INPUT, *fed, op("pnnx.Output", "out", str(len(operators))), _0=TensorSpec(shape, np.dtype(dtype)))


def expr(text: str, name: str = "e") -> Operator:
    return op("pnnx.Expression", name, expr=text)


@pytest.mark.parametrize(
    ("operators", "text"),
    [
        ([expr("add(@0,1)"), expr("mul(@0,3)", "f")], "mul(add(@0,1),3)"),
        ([expr("mul(@0,3)"), op("nn.ReLU", "relu")], "maximum(mul(@0,3),0)"),
        ([op("F.relu", "relu"), op("torch.sqrt", "root")], "sqrt(maximum(@0,0))"),
        ([op("nn.ReLU6", "six"), expr("add(@0,1)")], "add(minimum(maximum(@0,0.0),6.0),1)"),
        ([op("torch.add", "add", other=2, alpha=3), op("nn.Tanh", "tanh")], "tanh(add(@0,mul(2,3)))"),
        ([op("torch.rsub", "rsub", other=2), expr("abs(@0)")], "abs(sub(2,@0))"),
        ([op("torch.clamp", "c", min=-1, max=None), expr("exp(@0)")], "exp(maximum(@0,-1))"),
        ([op("torch.div", "d", other=2, rounding_mode="floor"), expr("neg(@0)")], "neg(floor_divide(@0,2))"),
        ([op("torch.pow", "p", other=2), expr("neg(@0)")], "neg(square(@0))"),
    ],
)
def test_two_in_a_row_become_one(operators: list[Operator], text: str) -> None:
    made = applied(expression_fusion, row(*operators), SPECIAL)
    assert expressions(made) == [text.replace("mul(2,3)", "6")]
    assert names(made) == [operators[-1].name]


def test_a_whole_row_becomes_one_in_one_go() -> None:
    steps = [expr("add(@0,1)", "a"), op("nn.ReLU", "b"), expr("mul(@0,3)", "c"), op("torch.exp", "d")]
    assert names(applied(expression_fusion, row(*steps))) == ["d"]


def test_a_tree_of_operators_becomes_one_expression_of_their_operands() -> None:
    graph = built(
        INPUT,
        op("pnnx.Input", "pnnx_input_1", "", "1"),
        op("pnnx.Expression", "a", "0 1", "2", expr="sub(@0,@1)"),
        op("pnnx.Expression", "b", "1 0", "3", expr="div(@0,@1)"),
        op("pnnx.Expression", "c", "3 2 1", "4", expr="add(mul(@0,@1),@2)"),
        op("pnnx.Output", "out", "4"),
        _0=(2, 3),
        _1=(2, 3),
    )
    made = applied(expression_fusion, graph)
    assert names(made) == ["c"]
    assert set(made.source.operators[2].inputs) == {"0", "1"}


@pytest.mark.parametrize("dtype", ["float16", "float64", "int64", "int32"])
def test_other_dtypes_are_merged_without_another_rounding(dtype: str) -> None:
    graph = row(expr("mul(@0,3)"), expr("add(@0,1)", "f"), dtype=dtype)
    assert len(expressions(applied(expression_fusion, graph))) == 1


def test_a_division_of_integers_that_rounds_down_still_does() -> None:
    graph = built(
        INPUT,
        op("pnnx.Expression", "half", "0", "1", expr="div(@0,2)"),
        op("pnnx.Expression", "plus", "1", "2", expr="add(@0,1)"),
        op("pnnx.Output", "out", "2"),
        _0=TensorSpec((4,), np.dtype(np.int64)),
        _1=TensorSpec((4,), np.dtype(np.int64)),
        _2=TensorSpec((4,), np.dtype(np.int64)),
    )
    made = applied(expression_fusion, graph, np.array([-3, -1, 2, 5]))
    assert expressions(made) == ["add(floor_divide(@0,2),1)"]


def two_users() -> RuntimeGraph:
    return built(
        INPUT,
        op("pnnx.Expression", "a", "0", "1", expr="exp(@0)"),
        op("pnnx.Expression", "b", "1", "2", expr="neg(@0)"),
        op("pnnx.Expression", "c", "1", "3", expr="abs(@0)"),
        op("pnnx.Output", "out", "2"),
        op("pnnx.Output", "out_1", "3"),
        _0=(2, 3),
    )


def returned() -> RuntimeGraph:
    return built(
        INPUT,
        op("pnnx.Expression", "a", "0", "1", expr="exp(@0)"),
        op("pnnx.Expression", "b", "1", "2", expr="neg(@0)"),
        op("pnnx.Output", "out", "1"),
        op("pnnx.Output", "out_1", "2"),
        _0=(2, 3),
    )


def broadcast() -> RuntimeGraph:
    """Return a graph of exp of a row, added to every row of a matrix: merged, exp would be computed for each."""
    return built(
        INPUT,
        op("pnnx.Input", "pnnx_input_1", "", "1"),
        op("pnnx.Expression", "a", "1", "2", expr="exp(@0)"),
        op("pnnx.Expression", "b", "0 2", "3", expr="add(@0,@1)"),
        op("pnnx.Output", "out", "3"),
        _0=(4, 3),
        _1=(3,),
    )


def used_twice() -> RuntimeGraph:
    return row(expr("exp(@0)"), expr("add(@0,mul(@0,@0))", "f"))


def other_dtype() -> RuntimeGraph:
    return row(expr("add(@0,1)"), expr("mul(@0,0.5)", "f"), dtype=np.int64)


def in_a_list() -> RuntimeGraph:
    return row(expr("exp(@0)"), expr("[@0,@0]", "f"))


def no_map() -> RuntimeGraph:
    return row(expr("exp(@0)"), op("F.softmax", "s", dim=1), expr("neg(@0)", "f"))


def better_alone() -> RuntimeGraph:
    return row(op("nn.Sigmoid", "s"), op("nn.SiLU", "t"), op("nn.GELU", "u"))


def relu_of_bools() -> RuntimeGraph:
    return row(op("nn.ReLU", "relu"), expr("and(@0,@0)"), dtype=np.bool_)


@pytest.mark.parametrize(
    "make",
    [two_users, returned, broadcast, used_twice, other_dtype, in_a_list, no_map, better_alone, relu_of_bools],
)
def test_what_would_be_computed_twice_or_is_no_map_stays(make: Any) -> None:
    assert_untouched(expression_fusion, make())


def test_a_cheap_result_used_twice_is_computed_twice() -> None:
    graph = row(expr("add(@0,1)"), expr("mul(@0,@0)", "f"))
    assert expressions(applied(expression_fusion, graph)) == ["mul(add(@0,1),add(@0,1))"]


def test_an_expression_does_not_grow_without_end() -> None:
    steps = [expr("exp(sin(@0))", f"e{k}") for k in range(LONGEST)]
    made = applied(expression_fusion, row(*steps))
    assert len(expressions(made)) == 2


def test_an_expression_does_not_read_more_operands_than_it_may() -> None:
    inputs = [op("pnnx.Input", f"pnnx_input_{k}", "", str(k)) for k in range(WIDEST + 2)]
    sums = [
        op("pnnx.Expression", f"e{k}", f"{k} {'s' + str(k - 1) if k > 1 else 0}", f"s{k}", expr="add(@0,@1)")
        for k in range(1, WIDEST + 2)
    ]
    shapes: dict[str, Any] = {f"_{k}": (2, 3) for k in range(WIDEST + 2)}
    graph = built(*inputs, *sums, op("pnnx.Output", "out", f"s{WIDEST + 1}"), **shapes)
    made = applied(expression_fusion, graph)
    assert max(len(each.inputs) for each in made.source.operators) == WIDEST
    assert len(expressions(made)) == 2


def test_dynamic_dimensions_are_no_hindrance() -> None:
    graph = row(expr("add(@0,1)"), op("nn.ReLU", "relu"), shape=(None, 5))
    assert names(applied(expression_fusion, graph)) == ["relu"]


def test_a_lone_expression_is_simplified_and_others_stay() -> None:
    made = applied(expression_fusion, row(expr("pow(div(@0,4),2)")), SPECIAL)
    assert expressions(made) == ["square(mul(@0,0.25))"]
    assert_untouched(expression_fusion, row(op("nn.ReLU", "relu")))
    assert_untouched(expression_fusion, row(op("torch.div", "d", other=4)))


def alone(type: str, params: dict[str, Any], count: int, dtype: str) -> RuntimeGraph:
    return built(
        INPUT,
        op(type, "it", " ".join(["0"] * count), "1", **params),
        op("pnnx.Output", "out", "1"),
        _0=TensorSpec((8,), np.dtype(dtype)),
    )


def functions() -> Iterator[tuple[str, str, int, str]]:
    """Every function of the registry that has an expression, with the dtypes it is defined for."""
    for type, dtype in product(registry, ["float32", "float64", "float16", "int64", "uint8"]):
        layer = registry[type].layer
        if type.startswith("torch.") and issubclass(layer, (Unary, Binary)):
            count = 1 + issubclass(layer, Binary)
            with contextlib.suppress(EngineError):  # not defined for this dtype
                graph = alone(type, {}, count, dtype)
                if (tree := tree_of(graph.operators[1], Facts(graph))) is not None:
                    yield type, dtype, count, format(tree)


@pytest.mark.parametrize(("type", "dtype", "count", "text"), list(functions()))
def test_a_function_and_its_expression_give_the_same_bits(type: str, dtype: str, count: int, text: str) -> None:
    inputs = [np.array([1, 2, 3, 4, 5, 1, 7, 2]).astype(dtype)]
    function, expression = alone(type, {}, count, dtype), alone("pnnx.Expression", {"expr": text}, count, dtype)
    assert_answers(execute(expression.plan, inputs), execute(function.plan, inputs))


def test_most_functions_have_an_expression() -> None:
    assert len({type for type, *_ in functions()}) > 40
