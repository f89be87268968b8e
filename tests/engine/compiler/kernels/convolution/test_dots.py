"""Convolutions to few channels, vectorised along the sums, against the sum written out in float64."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.compiler.codegen.host import Host, describe
from engine.compiler.kernels.convolution.dots import DotConv, Dots, choose_dot_tile, is_faster
from engine.compiler.kernels.convolution.tiles import ConvTile
from tests.engine.compiler.kernels.convolution.checking import Pair, check_convolution, drawn_geometry
from tests.engine.compiler.kernels.running import LEVELS
from tests.engine.compiler.machines import EMERALD_RAPIDS, ZEN_3, ZEN_4


def check(
    level: str, size: tuple[int, int, int], channels: Pair, *args: Pair, tile: ConvTile | None = None, **kwargs: Any
) -> None:
    """Run a kernel with these input and output channels."""
    inputs, outputs = channels

    def make(host: Host, geometry: dict[str, Any]) -> DotConv:
        of = {"in_channels": inputs, "out_channels": outputs, "groups": 1, "host": host, **geometry}
        dots = DotConv(tile=ConvTile(1, 1, 1), **of).dots
        best = choose_dot_tile(host, geometry["rows"], geometry["columns"], dots)
        return DotConv(tile=tile or best, **of)

    check_convolution(make, level, size, (1, inputs, outputs), *args, **kwargs)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("outputs", [1, 2, 3, 4])
@pytest.mark.parametrize("inputs", [1, 3, 16, 37, 64])
def test_any_number_of_channels(level: str, inputs: int, outputs: int) -> None:
    check(level, (2, 4, 6), (inputs, outputs))


@pytest.mark.parametrize("level", [level for level in LEVELS if describe(level).lanes >= 8])
@pytest.mark.parametrize("outputs", [5, 7, 8])
def test_up_to_a_whole_vector_of_them(level: str, outputs: int) -> None:
    check(level, (1, 3, 5), (20, outputs))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("size", [(1, 1), (1, 29), (13, 1), (2, 3), (7, 7)])
@pytest.mark.parametrize("stride", [1, 2])
def test_any_size(level: str, size: Pair, stride: int) -> None:
    check(level, (1, *size), (18, 2), stride=(stride, stride))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kernel", [(1, 1), (5, 5), (1, 9), (9, 1), (2, 4), (1, 501)])
@pytest.mark.parametrize("inputs", [1, 17])
def test_any_window(level: str, kernel: Pair, inputs: int) -> None:
    check(level, (1, 4, 9), (inputs, 2), kernel)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("stride", "dilation"), [((3, 1), (1, 2)), ((2, 2), (3, 3)), ((1, 4), (2, 1)), ((1, 1), (1, 5000))]
)
def test_any_stride_and_dilation(level: str, stride: Pair, dilation: Pair) -> None:
    check(level, (1, 3, 5), (21, 3), stride=stride, dilation=dilation)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("tile", [ConvTile(1, 5, 1), ConvTile(3, 2, 1), ConvTile(2, 1, 1)])
def test_pixels_may_lie_apart_and_tiles_overlap(level: str, tile: ConvTile) -> None:
    check(level, (2, 5, 7), (19, 2), gap=7, tail=True, tile=tile)


@given(data=st.data())
def test_whatever_the_geometry(data: st.DataObject) -> None:
    level = data.draw(st.sampled_from(LEVELS))
    channels = data.draw(st.tuples(st.integers(1, 70), st.integers(1, min(8, describe(level).lanes))))
    size, kernel, others = drawn_geometry(data)
    check(level, size, channels, kernel, **others)


@pytest.mark.parametrize(
    ("host", "along_sums", "along_channels"),
    [
        # (channels of the result, runs, values of a run)
        (EMERALD_RAPIDS, [(3, 3, 192), (1, 1, 64), (2, 21, 21), (4, 5, 320)], [(2, 1, 8), (8, 3, 192), (3, 3, 9)]),
        # Of vectors half as wide it begins two where it begins one that is whole.
        (ZEN_4, [(3, 3, 192), (1, 1, 64)], [(4, 3, 192), (8, 7, 448), (1, 3, 3)]),
        (ZEN_3, [(1, 3, 192), (3, 7, 448)], [(4, 3, 192), (5, 7, 448)]),
    ],
)
def test_vectors_run_along_the_sums_where_most_lanes_would_be_empty(
    host: Host, along_sums: list[tuple[int, int, int]], along_channels: list[tuple[int, int, int]]
) -> None:
    def is_chosen(outputs: int, runs: int, run: int) -> bool:
        return is_faster(host, Dots(outputs, runs, run, host.lanes))

    assert [each for each in along_sums if not is_chosen(*each)] == []
    assert [each for each in along_channels if is_chosen(*each)] == []
    assert not any(is_chosen(outputs, 9, 4096) for outputs in range(host.lanes // 2, 4 * host.lanes + 2))
