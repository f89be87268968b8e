"""Sizes near each other are chosen for together, and the choice is right for each of them."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from engine.compiler.codegen.host import describe
from engine.compiler.kernels.alike import EXACT, alike, mean_count
from engine.compiler.kernels.convolution.depthwise_tile import rank_tiles as rank_depthwise_tiles
from engine.compiler.kernels.convolution.tiles import rank_tiles

SIZES = st.integers(1, 1 << 31)
HOST = describe("avx512")


@given(SIZES)
def test_every_size_is_in_one_class(size: int) -> None:
    sizes = alike(size)
    assert size in sizes and alike(sizes[0]) == alike(sizes[-1]) == sizes
    assert alike(sizes.stop).start == sizes.stop


def test_classes_are_few_and_small_sizes_are_by_themselves() -> None:
    classes = dict.fromkeys(alike(size) for size in range(1, 4097))
    assert len(classes) < 50 and all(len(alike(size)) == 1 for size in range(1, EXACT))
    assert all(first.stop == second.start for first, second in pairwise(classes))


@given(st.integers(1, 10**6), st.integers(1, 64))
def test_the_average_of_pieces_lies_between_those_of_the_smallest_and_the_largest(size: int, width: int) -> None:
    sizes = alike(size)
    assert -(-sizes[0] // width) <= mean_count(sizes, width) <= -(-sizes[-1] // width)


@given(st.integers(1, 400), st.integers(1, 400), st.integers(1, 300), st.booleans())
def test_sizes_of_a_class_get_the_same_tile_and_it_is_no_larger_than_any_of_them(
    rows: int, columns: int, channels: int, is_depthwise: bool
) -> None:
    def tile(height: int, width: int) -> object:
        if is_depthwise:
            return rank_depthwise_tiles(HOST, height, width, (3, 3), (1, 1), (1, 1), is_open=True)[0]
        return rank_tiles(HOST, height, width, channels, 9 * channels, is_open=True)[0]

    found = tile(rows, columns)
    assert found.rows <= rows and found.columns <= columns  # type: ignore[attr-defined]
    for height, width in ((alike(rows)[0], alike(columns)[-1]), (alike(rows)[-1], alike(columns)[0])):
        assert tile(height, width) == found
