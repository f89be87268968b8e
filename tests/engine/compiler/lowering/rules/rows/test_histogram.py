"""Elements counted by intervals, and sums of numbers that are cut to whole ones first: the reference's answers."""

from __future__ import annotations

import numpy as np
import pytest

from engine import Session, TensorSpec
from tests.engine.compiler.lowering.agreeing import everywhere
from tests.engine.graph.build import F32, INPUT, built, op

RANDOM = np.random.default_rng(59)


@pytest.mark.parametrize(
    ("bins", "low", "high"), [(1, 0, 1), (4, 0, 3), (5, -1.0, 1.0), (64, 0, 63), (7, -0.3, 0.1), (100, -3.0, 3.0)]
)
def test_elements_are_counted_in_every_interval_and_at_its_edges(bins: int, low: float, high: float) -> None:
    edges = np.linspace(low, high, bins + 1).astype(F32)
    beside = np.nextafter(edges, np.float32(np.inf)), np.nextafter(edges, np.float32(-np.inf))
    x = np.concatenate([RANDOM.normal(0, high - low, 200), edges, *beside, [np.nan, np.inf, -np.inf, -0.0]]).astype(F32)
    everywhere([x.reshape(1, -1)], op("aten::histc", "it", "0", "1", bins=bins, min=low, max=high))


def test_whole_numbers_from_0_on_are_counted_each() -> None:
    x = RANDOM.integers(0, 8, (16, 2)).astype(F32)
    net = built(INPUT, op("aten::histc", "it", "0", "1", bins=8, min=0, max=7), op("pnnx.Output", "o", "1"), _0=(16, 2))
    found = Session(net, backend="compiled", cache=None).run([x])[0]
    np.testing.assert_array_equal(found, np.bincount(x.astype(int).reshape(-1), minlength=8).astype(F32))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"bins": 4, "min": 0, "max": 0}, "its range depends on its values"),
        ({"bins": 2**20, "min": 0, "max": 1}, "it has too many bins for so many elements"),
    ],
)
def test_what_is_left_to_the_reference_is_said(given: dict[str, float], why: str) -> None:
    net = built(
        INPUT, op("nn.ReLU", "r", "0", "1"), op("aten::histc", "it", "1", "2", **given), op("pnnx.Output", "o", "2"),
        _0=(9,),
    )  # fmt: skip
    session = Session(net, backend="compiled", cache=None)
    session.run([np.arange(9, dtype=F32)])
    (row,) = (each for each in session.describe()["operators"] if each["name"] == "it")
    assert row["why"] == why


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.int16])
@pytest.mark.parametrize("type_", ["torch.cumsum", "torch.cumprod"])
def test_floats_announced_as_whole_numbers_are_cut_before_they_are_added_up(type_: str, dtype: type) -> None:
    x = (RANDOM.standard_normal((3, 9)) * 3).astype(F32)
    it = op(type_, "it", "0", "1", dim=1)
    net = built(INPUT, it, op("pnnx.Output", "o", "1"), _0=(3, 9), _1=TensorSpec((3, 9), np.dtype(dtype)))
    session = Session(net, backend="compiled", cache=None)
    found, wanted = (each.run([x])[0] for each in (session, Session(net, backend="reference")))
    assert found.dtype == wanted.dtype == dtype
    np.testing.assert_array_equal(found, wanted)
    assert [each["kernel"] for each in session.describe()["operators"] if each["name"] == "it"] == ["scan"]
