"""Borders: zeros all around, and the image inside unchanged."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compiler.codegen.host import describe
from engine.compiler.kernels.images.border import Border, Bordered
from engine.tensor import Array
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.compiler.kernels.running import LEVELS, run


def border(level: str, shape: tuple[int, int, int], pitch: int, sides: tuple[int, int, int, int]) -> Border:
    """Return the kernel for (batch, rows, columns) with the border."""
    n, rows, columns = shape
    return Border(batch=n, rows=rows, columns=columns, pitch=pitch, border=sides, host=describe(level))


def images(code: Border) -> tuple[Array, Array]:
    """Return random images between guard pages, and the expected result."""
    random = np.random.default_rng(3)
    given = random.standard_normal((code.batch, code.rows, code.columns, code.pitch), np.float32)
    top, left, bottom, right = code.border
    wanted = np.zeros_like(given)
    inner = np.s_[:, top : code.rows - bottom, left : code.columns - right]
    wanted[inner] = given[inner]
    return given, wanted


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("sides", [(1, 1, 1, 1), (0, 2, 0, 0), (3, 0, 0, 0), (0, 0, 2, 0), (0, 1, 4, 3), (2, 0, 1, 0)])
@pytest.mark.parametrize("pitch", [1, 3, 16, 24, 61])
def test_zeros_lie_around_every_image(level: str, at_end: bool, sides: tuple[int, int, int, int], pitch: int) -> None:
    code = border(level, (2, 9, 8), pitch, sides)
    given, wanted = images(code)
    memory = guarded_array(given, at_end=at_end)
    run(code, level, [memory])
    np.testing.assert_array_equal(memory, wanted)


def test_a_large_border_is_cleared_in_parts() -> None:
    code = border(LEVELS[0], (2, 300, 5), 64, (1, 1, 1, 1))
    assert code.parts > 1
    given, wanted = images(code)
    run(code, LEVELS[0], [given])
    np.testing.assert_array_equal(given, wanted)


@pytest.mark.parametrize("level", LEVELS)
def test_a_kernel_clears_the_border_beside_its_own_work(level: str) -> None:
    inner, outer = border(level, (1, 7, 6), 5, (1, 1, 1, 1)), border(level, (3, 4, 6), 20, (0, 1, 1, 0))
    both = Bordered(host=outer.host, inner=inner, border=outer, arguments=1)
    assert (both.reported_kind, both.chunks) == ("border", inner.chunks + outer.chunks)
    (first, first_wanted), (second, second_wanted) = images(inner), images(outer)
    run(both, level, [first, second])
    np.testing.assert_array_equal(first, first_wanted)
    np.testing.assert_array_equal(second, second_wanted)
