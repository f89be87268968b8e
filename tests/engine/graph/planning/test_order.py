"""Execution orders on random graphs: each valid, each giving the same answer, one with the lowest peak."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import ParameterError, RuntimeGraph, Session
from engine.graph.planning.execution_order import ORDERS
from engine.options import Backend
from engine.pnnx import Operator
from tests.engine.graph.build import F32, built, graph, op


@st.composite
def random_graphs(draw: st.DrawFn) -> list[Operator]:
    """Graphs of sums, pairs and lists over one input, in any file order."""
    operators = [op("pnnx.Input", "pnnx_input_0", "", "v0")]
    count = draw(st.integers(1, 12))
    for k in range(1, count + 1):
        operands = draw(st.lists(st.integers(0, k - 1), min_size=1, max_size=3))
        names = " ".join(f"v{i}" for i in operands)
        text = "@0" if len(operands) == 1 else f"add(@0,@{len(operands) - 1})"
        operators.append(op("pnnx.Expression", f"op{k}", names, f"v{k}", expr=f"mul({text},2)"))
    used = {name for each in operators for name in each.inputs}
    ends = [f"v{k}" for k in range(count + 1) if f"v{k}" not in used]
    operators.append(op("prim::TupleConstruct", "tuple", " ".join(ends), "end"))
    operators.append(op("pnnx.Output", "pnnx_output_0", "end"))
    return draw(st.permutations(operators))


@given(random_graphs(), st.sampled_from(sorted(ORDERS)))
def test_every_order_runs_makers_before_users(operators: list[Operator], order: str) -> None:
    net = graph(*operators, _v0=(2, 3))
    net.build(order)  # type: ignore[arg-type]
    made: set[str] = set()
    for each in net.operators:
        assert {operand.name for operand in each.inputs} <= made
        made |= {operand.name for operand in each.outputs}
    assert sorted(each.name for each in net.operators) == sorted(each.name for each in operators)


# Machine code is made from the plan, which the reference follows as it is, and takes far longer.
@given(random_graphs(), st.sampled_from(["reference", "reference", "reference", "auto"]))
def test_every_order_gives_the_same_answer(operators: list[Operator], backend: Backend) -> None:
    x = np.arange(6, dtype=F32).reshape(2, 3)
    results = []
    for order in ORDERS:
        net = graph(*operators, _v0=(2, 3))
        net.build(order)  # type: ignore[arg-type]
        results.append(Session(net, backend=backend).run([x]))
    for others in results[1:]:
        for a, b in zip(results[0], others, strict=True):
            np.testing.assert_array_equal(a, b)


@given(random_graphs())
def test_least_memory_is_no_worse_than_the_others(operators: list[Operator]) -> None:
    peaks = {}
    for order in ORDERS:
        net = graph(*operators, _v0=(2, 3))
        net.build(order)  # type: ignore[arg-type]
        peaks[order] = net.plan.peak_bytes
    assert peaks["least_memory"] == min(peaks.values())


def test_depth_first_follows_a_branch_to_its_end() -> None:
    operators = [
        op("pnnx.Input", "pnnx_input_0", "", "0"),
        op("nn.ReLU", "a1", "0", "a"),
        op("nn.ReLU", "b1", "0", "b"),
        op("nn.ReLU", "a2", "a", "aa"),
        op("nn.ReLU", "b2", "b", "bb"),
        op("prim::TupleConstruct", "t", "aa bb", "c"),
        op("pnnx.Output", "out", "c"),
    ]
    names = {}
    for order in ("kahn", "depth_first"):
        net = graph(*operators, _0=(1,))
        net.build(order)  # type: ignore[arg-type]
        names[order] = [each.name for each in net.operators][1:5]
    assert names == {"kahn": ["a1", "b1", "a2", "b2"], "depth_first": ["a1", "a2", "b1", "b2"]}


def test_an_unknown_order_is_refused() -> None:
    net = graph(op("pnnx.Input", "pnnx_input_0", "", "0"), op("pnnx.Output", "out", "0"), _0=(1,))
    with pytest.raises(ParameterError, match="unknown order: found 'random', expected kahn, depth_first, least_memory"):
        net.build("random")  # type: ignore[arg-type]


@given(random_graphs())
def test_measured_peak_memory_is_the_plans(operators: list[Operator]) -> None:
    net: RuntimeGraph = built(*operators, _v0=(2, 3))
    x = np.ones((2, 3), F32)
    assert Session(net, backend="reference").run([x], profile=True).peak_bytes == net.plan.peak_bytes
