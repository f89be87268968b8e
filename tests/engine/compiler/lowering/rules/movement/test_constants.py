"""Tensors full of one number, in sizes that a run decides: no step of their own, and the reference's answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import Session, TensorSpec
from engine.pnnx import Operator
from tests.engine.graph.build import F32, INPUT, built, op

RANDOM = np.random.default_rng(12)
LENGTH = op("Tensor.size", "length", "0", "n", dim=0)
SIZES = op("pnnx.Expression", "sizes", "n", "sizes", expr="[@0,3]")


def check(*operators: Operator, lengths: tuple[int, ...] = (4, 1, 7, 100)) -> None:
    """Behind what is made an operator that uses it; at several lengths, each asked twice."""
    ends = [op("nn.ReLU", "other", "0", "other"), op("pnnx.Output", "out", "z"), op("pnnx.Output", "also", "other")]
    graph = built(INPUT, LENGTH, SIZES, *operators, *ends, _0=(None, 3))
    session = Session(graph, backend="compiled", cache=None, threads=1)
    reference = Session(graph, backend="reference")
    for length in lengths:
        x = RANDOM.standard_normal((length, 3)).astype(F32)
        for _ in range(2):
            found, wanted = session.run([x])[0], reference.run([x])[0]
            assert found.dtype == wanted.dtype and found.flags.writeable
            np.testing.assert_array_equal(found, wanted)
            found[...] = 9  # which no later run may see
    rows = {row["name"]: row for row in session.describe()["operators"]}
    assert "reference" not in {rows[each.name].get("kernel") for each in operators}, rows


@pytest.mark.parametrize(
    "made",
    [
        op("torch.full", "it", "sizes", "y", labels=("size",), fill_value=2.5),
        op("torch.zeros", "it", "sizes", "y", labels=("size",), dtype="torch.float"),
        op("torch.ones", "it", "sizes", "y", labels=("size",)),
        op("torch.empty", "it", "sizes", "y", labels=("size",)),
    ],
    ids=lambda each: each.type,
)
@pytest.mark.parametrize("use", ["add(@0,@1)", "mul(@1,add(@0,@0))"])
def test_a_size_of_the_run(made: Operator, use: str) -> None:
    check(made, op("pnnx.Expression", "use", "0 y", "z", expr=use))


@pytest.mark.parametrize("dtype", ["torch.long", "torch.bool", "torch.int", "torch.double", "torch.uint8"])
def test_of_any_dtype_and_returned_as_it_is(dtype: str) -> None:
    check(op("torch.full", "it", "sizes", "z", labels=("size",), fill_value=True, dtype=dtype))


def test_constants_are_spread_to_a_size_of_the_run() -> None:
    row = RANDOM.standard_normal((1, 3)).astype(F32)
    data, spread = op("pnnx.Attribute", "row", "", "row", data=row), {"labels": (None, "sizes")}
    check(data, op("Tensor.expand", "it", "row sizes", "y", **spread), op("nn.ReLU", "use", "y", "z"))
    check(data, op("Tensor.expand", "it", "row sizes", "z", **spread))


def test_what_is_written_into_one_is_not_there_the_next_time() -> None:
    fill = op("torch.full", "it", "sizes", "y", labels=("size",), fill_value=1.0)
    index = op("pnnx.Attribute", "index", "", "index", data=np.array([0], np.int64))
    first = op("torch.index_select", "first", "0 index", "first", dim=0)
    write: dict[str, Any] = {"labels": (None, "index", "source"), "dim": 0}
    check(fill, index, first, op("torch.index_add", "write", "y index first", "z", **write))


def test_a_number_of_the_run() -> None:
    graph = built(
        op("pnnx.Input", "a", "", "0"),
        op("pnnx.Input", "b", "", "1"),
        LENGTH,
        SIZES,
        op("torch.full", "it", "sizes 1", "y", labels=("size", "fill_value")),
        op("pnnx.Expression", "use", "0 y", "z", expr="add(@0,@1)"),
        op("pnnx.Output", "out", "z"),
        _0=(None, 3),
        _1=TensorSpec((), F32),
    )
    for length in (5, 2):
        x, number = RANDOM.standard_normal((length, 3)).astype(F32), np.array(0.25 * length, F32)
        (wanted,) = Session(graph, backend="reference").run([x, number])
        (found,) = Session(graph, backend="compiled", cache=None).run([x, number])
        np.testing.assert_array_equal(found, wanted)
