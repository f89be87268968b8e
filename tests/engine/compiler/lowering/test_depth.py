"""Graphs that are deep, wide or ordered badly are lowered without recursion, each operator looked at a few times."""

from __future__ import annotations

import random

import numpy as np
import pytest

from engine import Session
from engine.compiler.lowering.layout import MAX_NESTING, find_images, find_slices
from engine.graph import RuntimeGraph, RuntimeOperand, execute
from engine.layers.pooling.max_pool import MaxPool
from engine.tensor import TensorSpec
from tests.engine.graph.build import F32, INPUT, built, op

OUT = op("pnnx.Output", "out", "9")
POOL = {"kernel_size": (3, 3), "stride": (1, 1), "padding": (1, 1)}


def nested_joins(count: int, rows: int) -> RuntimeGraph:
    """Each concatenation is the first part of the next; without rows all are of one size."""
    first = op("torch.sin", "sin", "0", "c0")
    parts = [op("torch.sin", f"p{k}", "more", f"p{k}") for k in range(count)]
    joins = [op("torch.cat", f"cat{k}", f"c{k} p{k}", f"c{k + 1}", dim=1) for k in range(count)]
    more = op("pnnx.Attribute", "more", "", "more", data=np.zeros((1, rows, 2, 2), F32))
    return built(INPUT, first, more, *parts, *joins, op("nn.MaxPool2d", "pool", f"c{count}", "9", **POOL), OUT,
                 _0=(1, 1, 2, 2))  # fmt: skip


def spec_of(operand: RuntimeOperand) -> TensorSpec | None:
    return operand.spec


@pytest.mark.parametrize("rows", [0, 1])
def test_concatenations_lie_in_each_other_to_a_depth(rows: int) -> None:
    graph = nested_joins(100, rows)
    places = find_slices(graph.operators, spec_of)
    for name in places:
        depth, around = 0, name
        while around in places:
            depth, around = depth + 1, places[around].joined.name
        assert depth <= MAX_NESTING


@pytest.mark.parametrize(("count", "rows"), [(400, 0), (60, 1)])
def test_concatenations_deep_inside_each_other_give_what_the_reference_gives(count: int, rows: int) -> None:
    graph = nested_joins(count, rows)
    (found,) = Session(graph, backend="compiled", threads=1, cache=None).run([np.ones((1, 1, 2, 2), F32)])
    np.testing.assert_allclose(found, execute(graph.plan, [np.ones((1, 1, 2, 2), F32)])[0], rtol=1e-6)


def test_images_are_found_in_time_in_proportion_to_the_graph() -> None:
    count = 800
    order = list(range(count - 1))
    random.Random(0).shuffle(order)
    graph = built(
        INPUT,
        *(op("torch.sin", f"s{k}", "0", f"y{k}") for k in range(count)),
        *(op("torch.maximum", f"m{k}", f"y{k} y{k + 1}", f"z{k}") for k in order),
        op("nn.MaxPool2d", "pool", "y0", "9", **POOL),
        OUT,
        _0=(1, 2, 3, 3),
    )
    asked = 0

    def counted(operand: RuntimeOperand) -> TensorSpec | None:
        nonlocal asked
        asked += 1
        return operand.spec

    found = find_images(graph.operators, counted, {MaxPool}, lambda op: op.type != "pnnx.Input")
    assert {f"z{k}" for k in order} <= found
    assert asked < 60 * count
