"""Elements added where an index says: the reference's answers, and its refusals."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compiler.codegen.host import describe
from engine.compiler.kernels.picking import Positions
from engine.compiler.kernels.scattering import Scattering
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.compiler.kernels.running import LEVELS, run
from tests.engine.compiler.lowering.test_picking import kernel_of

RANDOM = np.random.default_rng(23)


@pytest.mark.parametrize("shape", [(1,), (17,), (3, 5), (2, 3, 65)], ids=str)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_what_meets_at_a_place_adds_up(shape: tuple[int, ...], dtype: type) -> None:
    x = RANDOM.standard_normal(shape).astype(np.float32)
    for dim in range(-1, len(shape)):
        sizes = [max(1, size - 1) for size in shape]
        sizes[dim] = 9
        index = RANDOM.integers(0, shape[dim], sizes).astype(dtype)
        source = RANDOM.standard_normal([size + 1 for size in sizes]).astype(np.float32)
        assert kernel_of("torch.scatter_add", [x, index, source], dim=dim) in ("scatter", "refused")


@pytest.mark.parametrize("wrong", [-1, 3, 2**62, -(2**63)])
def test_an_index_outside_is_refused_as_the_reference_does(wrong: int) -> None:
    x, index = RANDOM.standard_normal((3, 5)).astype(np.float32), np.zeros((2, 5), np.int64)
    index[1, 4] = wrong
    assert kernel_of("torch.scatter_add", [x, index, x], dim=0) == "refused"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("wrong", [-1, 3, 2**62])
def test_nothing_outside_is_written(level: str, wrong: int) -> None:
    target, source = (guarded_array(np.ones((3, 5), np.float32)) for _ in range(2))
    index, alarm = np.full((2, 5), wrong), np.zeros(1, np.int32)
    index[0] = 2
    at = Positions(strides=(5, 1), bits=64, size=3, step=5, wraps=False)
    kernel = Scattering(sizes=(2, 5), target=(0, 1), source=(5, 1), positions=at, host=describe(level))
    run(kernel, level, [target, source, index, alarm])
    assert alarm[0] == 2
    np.testing.assert_array_equal(target, [[1] * 5, [1] * 5, [2] * 5])
