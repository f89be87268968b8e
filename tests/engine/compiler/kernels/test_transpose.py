"""Transposed copies: every bit arrives, and nothing else is written."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from engine.compiler.codegen.host import describe
from engine.compiler.kernels.transpose import Repeat, Transpose
from engine.tensor import Array
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.compiler.kernels.running import LEVELS, run

SIZES = [1, 2, 3, 5, 16, 33, 85]


def view(buffer: Array, shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    """Return a buffer with strides in elements."""
    return as_strided(buffer, shape, [4 * each for each in strides])


def check(level: str, rows: int, columns: int, repeats: tuple[int, ...] = (), gaps: tuple[int, int] = (0, 0)) -> None:
    """Transpose random bits; lines lie ``gaps`` elements further apart than necessary."""
    source_row, target_column = columns + gaps[0], rows + gaps[1]
    steps, sizes = [], [rows * source_row + 5, columns * target_column + 3]
    for count in reversed(repeats):
        steps.insert(0, Repeat(count, *sizes))
        sizes = [count * size for size in sizes]
    shape = (*repeats, rows, columns)
    in_strides = (*(each.source for each in steps), source_row, 1)
    out_strides = (*(each.target for each in steps), 1, target_column)
    n_in, n_out = (
        1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        for strides in (in_strides, out_strides)
    )
    random = np.random.default_rng(11)
    source = guarded_array(random.integers(0, 1 << 32, n_in, np.uint32).view(np.float32))
    target = guarded_array(random.integers(0, 1 << 32, n_out, np.uint32).view(np.float32))
    wanted = target.view(np.uint32).copy()
    view(wanted, shape, out_strides)[...] = view(source.view(np.uint32), shape, in_strides)
    kernel = Transpose(
        repeats=tuple(steps),
        rows=rows,
        columns=columns,
        source_row=source_row,
        target_column=target_column,
        host=describe(level),
    )
    run(kernel, level, [source, target])
    np.testing.assert_array_equal(target.view(np.uint32), wanted)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("rows", SIZES)
def test_every_element_arrives(level: str, rows: int) -> None:
    for columns in SIZES:
        check(level, rows, columns)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("gaps", [(0, 1), (1, 0), (7, 13)])
@pytest.mark.parametrize("shape", [(1, 50), (3, 50), (50, 3), (50, 2), (16, 3), (70, 9), (21, 66)])
def test_lines_may_lie_apart(level: str, gaps: tuple[int, int], shape: tuple[int, int]) -> None:
    check(level, *shape, gaps=gaps)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("shape", [(3, 37), (37, 3), (40, 24)])
def test_transpositions_repeat(level: str, shape: tuple[int, int]) -> None:
    check(level, *shape, repeats=(3, 2), gaps=(2, 1))


@pytest.mark.parametrize("shape", [(3, 9000), (9000, 4), (300, 200)])
def test_work_falls_into_chunks_that_together_do_all_of_it(shape: tuple[int, int]) -> None:
    check(LEVELS[0], *shape)
