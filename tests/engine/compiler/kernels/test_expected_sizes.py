"""Tiles of symbolic sizes are chosen for the expected sizes, and fit all from half of the hint on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.compiler.codegen.host import describe
from engine.compiler.kernels.convolution.depthwise_tile import choose_tile as choose_depthwise_tile
from engine.compiler.kernels.convolution.tiles import choose_tile, expected_sizes, mean_count
from engine.ir.dims import ShapeEnv

SIZES = st.integers(2, 1 << 31)
HOST = describe("avx512")


def symbolic(size: int) -> int:
    return ShapeEnv().dynamic("size", size)


@given(SIZES)
def test_a_known_size_is_expected_alone_and_a_symbolic_one_among_others(size: int) -> None:
    assert [*expected_sizes(size)] == [size]
    sizes = expected_sizes(symbolic(size))
    assert sizes.start == (size + 1) // 2 and size in sizes and abs(sizes[-1] - 1.5 * size) <= 1


@given(SIZES, st.integers(1, 64))
def test_the_average_of_pieces_lies_between_those_of_the_smallest_and_the_largest(size: int, width: int) -> None:
    sizes = expected_sizes(symbolic(size))
    assert -(-sizes[0] // width) <= mean_count(sizes, width) <= -(-sizes[-1] // width)
    assert mean_count(expected_sizes(size), width) == -(-size // width)


@given(st.integers(2, 400), st.integers(2, 400), st.integers(1, 300), st.booleans())
def test_a_tile_is_no_larger_than_half_of_a_symbolic_size(
    rows: int, columns: int, channels: int, is_depthwise: bool
) -> None:
    sizes = symbolic(rows), symbolic(columns)
    if is_depthwise:
        found = choose_depthwise_tile(HOST, *sizes, (3, 3), (1, 1), (1, 1))
        assert found.rows <= (rows + 1) // 2 and found.columns <= (columns + 1) // 2
    else:
        tile = choose_tile(HOST, *sizes, channels, 9 * channels)
        assert tile.rows <= (rows + 1) // 2 and tile.columns <= (columns + 1) // 2
