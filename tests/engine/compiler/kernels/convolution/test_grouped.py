"""Convolution of narrow groups, several to a vector, against the sum written out in float64; and its selection."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.compiler.codegen.host import Host, describe
from engine.compiler.kernels.convolution.grouped import GroupedConv, PackedGroups, choose_grouped_tile, is_faster
from engine.compiler.kernels.convolution.tiles import ConvTile
from tests.engine.compiler.kernels.convolution.checking import Pair, check_convolution, drawn_geometry
from tests.engine.compiler.kernels.running import LEVELS
from tests.engine.compiler.machines import EMERALD_RAPIDS, ZEN_3, ZEN_4


def check(
    level: str,
    size: tuple[int, int, int],
    channels: tuple[int, int, int],
    *args: Pair,
    tile: ConvTile | None = None,
    **kwargs: Any,
) -> None:
    """Run a kernel with these groups, input and output channels a group."""
    groups, inputs, outputs = channels

    def make(host: Host, geometry: dict[str, Any]) -> GroupedConv:
        of = (geometry["rows"], geometry["columns"], geometry["kernel"])
        best = choose_grouped_tile(host, *of, geometry["stride"][1], geometry["dilation"][1], inputs)
        return GroupedConv(
            in_channels=inputs,
            out_channels=groups * outputs,
            outputs=outputs,
            groups=1,
            tile=tile or best,
            host=host,
            **geometry,
        )

    check_convolution(make, level, size, channels, *args, **kwargs)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "channels", [(1, 2, 2), (2, 1, 2), (8, 4, 4), (7, 3, 3), (9, 1, 3), (5, 4, 1), (6, 3, 2), (17, 1, 1)]
)
def test_any_number_of_groups_of_any_width(level: str, channels: tuple[int, int, int]) -> None:
    check(level, (2, 4, 6), channels)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("size", [(1, 1), (1, 29), (13, 1), (2, 3), (7, 7)])
@pytest.mark.parametrize("stride", [1, 2])
def test_any_size(level: str, size: Pair, stride: int) -> None:
    check(level, (1, *size), (5, 2, 3), stride=(stride, stride))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kernel", [(1, 1), (5, 5), (1, 9), (9, 1), (2, 4), (1, 101)])
def test_any_window(level: str, kernel: Pair) -> None:
    check(level, (1, 4, 9), (5, 2, 2), kernel)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("stride", "dilation"), [((3, 1), (1, 2)), ((2, 2), (3, 3)), ((1, 4), (2, 1)), ((1, 1), (1, 5000))]
)
def test_any_stride_and_dilation(level: str, stride: Pair, dilation: Pair) -> None:
    check(level, (1, 3, 5), (5, 3, 2), stride=stride, dilation=dilation)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("tile", [ConvTile(1, 5, 1), ConvTile(3, 2, 1), ConvTile(2, 1, 1)])
def test_pixels_may_lie_apart_and_tiles_overlap(level: str, tile: ConvTile) -> None:
    check(level, (2, 5, 7), (9, 2, 2), gap=7, tail=True, tile=tile)


@given(data=st.data())
def test_whatever_the_geometry(data: st.DataObject) -> None:
    level = data.draw(st.sampled_from(LEVELS))
    lanes = describe(level).lanes
    channels = data.draw(st.tuples(st.integers(1, 20), st.integers(1, lanes), st.integers(1, lanes)))
    size, kernel, others = drawn_geometry(data)
    check(level, size, channels, kernel, **others)


@pytest.mark.parametrize(
    ("host", "together", "alone"),
    [
        (
            EMERALD_RAPIDS,
            [(4, 4, 3), (5, 5, 3), (8, 8, 3), (1, 2, 3), (4, 4, 1)],
            [(16, 16, 3), (12, 12, 3), (9, 3, 3)],
        ),
        # Of vectors half as wide it begins two where it begins one that is whole.
        (ZEN_4, [(4, 4, 3), (2, 2, 3), (1, 2, 3)], [(8, 8, 3), (5, 5, 3), (16, 16, 3)]),
        (ZEN_3, [(4, 4, 3), (2, 2, 3)], [(8, 8, 3), (5, 5, 3), (4, 4, 1)]),
    ],
)
def test_groups_share_vectors_where_most_lanes_would_be_empty(
    host: Host, together: list[tuple[int, int, int]], alone: list[tuple[int, int, int]]
) -> None:
    def share(inputs: int, outputs: int, taps: int) -> bool:
        return is_faster(host, PackedGroups(inputs, outputs, 32, host.lanes), taps)

    assert all(share(*each) for each in together) and not any(share(*each) for each in alone)


@pytest.mark.parametrize("host", [EMERALD_RAPIDS, ZEN_4, ZEN_3, describe("sse"), describe("neon")])
def test_tiles_fit_the_image(host: Host) -> None:
    for rows, columns in ((1, 1), (7, 7), (56, 56), (2, 1000)):
        tile = choose_grouped_tile(host, rows, columns, (3, 3), 1, 1, 2)
        assert tile.rows <= rows and tile.columns <= columns
