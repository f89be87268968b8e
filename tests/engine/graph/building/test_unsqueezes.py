"""Reshapes that the converter wrote for new dimensions hold for other sizes than those of its example."""

from __future__ import annotations

import numpy as np
import pytest

from engine import Session, TensorSpec
from tests.engine.graph.build import built, op

I64 = np.dtype(np.int64)
COUNTED = np.array([1, 0, 1, 1], np.float32)


@pytest.mark.parametrize("backend", ["reference", "compiled"])
def test_as_many_elements_as_the_values_decide_get_new_dimensions(backend: str) -> None:
    net = built(
        op("pnnx.Input", "in0", "", "0"),
        op("torch.sum", "total", "0", "1", labels=("input",)),
        op("Tensor.to", "whole", "1", "2", labels=("input",), copy=False, dtype="torch.long"),
        op("torch.arange", "range", "2", "3", labels=("end",), dtype=None),
        op("Tensor.reshape", "torch.unsqueeze_5", "3", "4", labels=("input",), shape=(1, 7, 1)),
        op("pnnx.Output", "out", "4"),
        _0=(4,), _3=TensorSpec((7,), I64), _4=TensorSpec((1, 7, 1), I64),
    )  # fmt: skip
    found = Session(net, backend=backend, cache=None).run([COUNTED])[0]
    np.testing.assert_array_equal(found, np.arange(3)[None, :, None])


@pytest.mark.parametrize(("before", "after"), [((1, 6), (1, 1, 6)), ((2, 3), (1, 3, 2)), ((6,), (2, 3))])
def test_other_reshapes_of_that_name_stay(before: tuple[int, ...], after: tuple[int, ...]) -> None:
    net = built(
        op("pnnx.Input", "in0", "", "0"),
        op("Tensor.reshape", "torch.unsqueeze_5", "0", "1", labels=("input",), shape=after),
        op("pnnx.Output", "out", "1"),
        _0=before, _1=after,
    )  # fmt: skip
    assert [each.type for each in net.operators] == ["pnnx.Input", "Tensor.reshape", "pnnx.Output"]
