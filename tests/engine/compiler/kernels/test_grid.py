"""Work cut into chunks: every element is in one, and there are as many chunks as wanted if they are large enough."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.compiler.codegen.ir import Module
from engine.compiler.kernels.grid import Grid

SIZES = st.tuples(st.integers(1, 40), st.integers(1, 40))


def cells(grid: Grid, chunk: int) -> list[tuple[int, int]]:
    ranges = grid.ranges(Module().function("f", []), chunk)  # what is known folds
    rows, columns = (range(*each) for each in ranges)
    return list(product(rows, columns))


@given(SIZES, SIZES, st.booleans())
def test_every_piece_is_in_one_chunk(sizes: tuple[int, int], wanted: tuple[int, int], rows_first: bool) -> None:
    grid = Grid(sizes, sizes).cut(wanted[0], 1.0, wanted[1], rows_first=rows_first)
    found = [cell for chunk in range(grid.chunks) for cell in cells(grid, chunk)]
    assert sorted(found) == list(product(range(sizes[0]), range(sizes[1])))


@given(SIZES, st.integers(1, 64), st.integers(1, 64), st.booleans())
def test_chunks_are_as_many_as_wanted_or_short(
    sizes: tuple[int, int], wanted: int, least: int, rows_first: bool
) -> None:
    grid = Grid(sizes, sizes).cut(wanted, 1.0, least, rows_first=rows_first)
    assert grid.chunks >= wanted or grid.block[0] * grid.block[1] <= max(1, least)


@pytest.mark.parametrize(
    ("sizes", "block"), [((5, 72), (4, 8)), ((7, 64), (6, 6)), ((1, 1), (1, 1)), ((9, 10), (9, 3))]
)
def test_blocks_made_even_are_no_more_and_differ_less(sizes: tuple[int, int], block: tuple[int, int]) -> None:
    grid = Grid(sizes, block)
    even = grid.evened()
    assert even.tiling == grid.tiling
    for size, each, before in zip(sizes, even.block, block, strict=True):
        count = -(-size // each)
        assert each <= before
        assert each * count - size < count
