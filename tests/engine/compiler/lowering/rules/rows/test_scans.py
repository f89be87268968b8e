"""Sums and products of numbers that are cut to whole ones first: the reference's answers."""

from __future__ import annotations

import numpy as np
import pytest

from engine import Session, TensorSpec
from tests.engine.graph.build import F32, INPUT, built, op

RANDOM = np.random.default_rng(59)


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
