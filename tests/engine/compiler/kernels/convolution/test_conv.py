"""Direct convolution: every size, stride, dilation and processor level against the sum written out in float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.compiler.codegen.host import describe
from engine.compiler.kernels.convolution.conv import Conv
from engine.compiler.kernels.convolution.tiles import ConvTile, choose_tile
from engine.compiler.kernels.expr import Operand, apply
from engine.compiler.kernels.kernel import Epilogue
from tests.engine.compiler.kernels.convolution.pointwise import pointwise
from tests.engine.compiler.kernels.convolution.summed import convolved
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.compiler.kernels.running import LEVELS, dense, run

Pair = tuple[int, int]


def check(
    level: str,
    shape: tuple[int, int, int],
    channels: Pair,
    kernel: Pair = (3, 3),
    *,
    stride: Pair = (1, 1),
    dilation: Pair = (1, 1),
    groups: int = 1,
    gap: int = 0,
    tail: str | None = None,
    tile: ConvTile | None = None,
    streams: int = 1,
) -> Conv:
    """Run a kernel whose image, weights and target end at a guard page; pixels lie ``gap`` floats apart."""
    n, rows, columns = shape
    in_channels, out_channels = channels
    random = np.random.default_rng(11)
    height = (rows - 1) * stride[0] + (kernel[0] - 1) * dilation[0] + 1
    width = (columns - 1) * stride[1] + (kernel[1] - 1) * dilation[1] + 1
    pitch = in_channels + gap
    image = random.standard_normal((n, height, width, pitch), np.float32)
    weight = random.standard_normal((out_channels, in_channels // groups, *kernel), np.float32)
    bias = random.standard_normal(out_channels, np.float32)
    other = random.standard_normal((n, rows, columns, out_channels), np.float32)
    host = describe(level)
    if streams > 1:
        host = replace(host, memory=replace(host.memory, second_bytes=1 << 14, streams=streams))
    out = dense(rows, columns, out_channels)
    taps = weight[0].size
    code = Conv(
        batch=n,
        rows=rows,
        columns=columns,
        in_channels=in_channels // groups,
        out_channels=out_channels // groups,
        groups=groups,
        kernel=kernel,
        stride=stride,
        dilation=dilation,
        source=dense(height, width, pitch),
        target=out,
        tile=tile or choose_tile(host, rows, columns, out_channels // groups, taps),
        host=host,
        epilogue=Epilogue(apply("add", apply(tail, Operand(0)), Operand(1)), (out,)) if tail else Epilogue(),
    )
    # No gap follows the last pixel: the image ends with its last channel.
    flat = guarded_array(image.reshape(-1)[: image.size - gap])
    result = guarded_array(np.full(other.shape, np.nan, np.float32))
    extras = [guarded_array(other)] if tail else []
    run(code, level, [flat, guarded_array(code.pack(weight, bias)), result, *extras])
    wanted = convolved(image[..., :in_channels], weight, bias, stride, dilation, groups)
    if tail:
        wanted = (np.maximum(wanted, 0) if tail == "relu" else wanted / (1 + np.exp(-wanted))) + other
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=3e-6 * taps**0.5)
    return code


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("channels", [(1, 1), (3, 24), (5, 7), (16, 40), (24, 17), (40, 116)])
def test_any_number_of_channels(level: str, channels: Pair) -> None:
    check(level, (2, 5, 7), channels)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("size", [(1, 1), (1, 29), (29, 1), (2, 3), (9, 17), (7, 7)])
@pytest.mark.parametrize("stride", [1, 2])
def test_any_size(level: str, size: Pair, stride: int) -> None:
    check(level, (1, *size), (6, 20), stride=(stride, stride))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kernel", [(1, 1), (5, 5), (7, 7), (1, 9), (9, 1), (2, 4)])
def test_any_window(level: str, kernel: Pair) -> None:
    check(level, (1, 6, 11), (4, 18), kernel)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("stride", "dilation"), [((3, 1), (1, 2)), ((2, 2), (3, 3)), ((1, 4), (2, 1)), ((5, 5), (1, 1))]
)
def test_any_stride_and_dilation(level: str, stride: Pair, dilation: Pair) -> None:
    check(level, (1, 6, 9), (5, 18), stride=stride, dilation=dilation)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("channels", "groups"), [((6, 9), 3), ((32, 64), 2), ((10, 10), 5), ((40, 120), 4)])
def test_groups(level: str, channels: Pair, groups: int) -> None:
    check(level, (1, 6, 9), channels, groups=groups)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("gap", [1, 16])
def test_the_image_may_be_a_slice_of_more_channels(level: str, gap: int) -> None:
    check(level, (2, 5, 8), (12, 20), gap=gap)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("tail", ["relu", "silu"])
def test_a_residual_is_added_after_an_activation(level: str, tail: str) -> None:
    check(level, (2, 6, 9), (8, 37), tail=tail)


@pytest.mark.parametrize("level", LEVELS)
def test_a_linear_layer_is_a_convolution_of_one_row(level: str) -> None:
    check(level, (1, 1, 1), (130, 203), (1, 1))


@pytest.mark.parametrize("level", LEVELS)
def test_an_image_larger_than_the_caches(level: str) -> None:
    check(level, (1, 90, 131), (64, 32), (1, 1), tail="silu")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("size", [(1, 1, 33), (1, 6, 7), (3, 4, 5)])
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3)])
def test_tiles_fetch_the_weights_of_the_next_panel(level: str, size: tuple[int, int, int], kernel: Pair) -> None:
    check(level, size, (67, 150), kernel, tail="silu", tile=ConvTile(1, 2, 2))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("channels", [(256, 16), (300, 40), (1031, 33)])
@pytest.mark.parametrize("pixels", [1, 2, 3])
def test_a_single_tile_reads_its_weights_in_several_places_in_turns(level: str, channels: Pair, pixels: int) -> None:
    code = check(level, (1, 1, pixels), channels, (1, 1), tail="silu", tile=ConvTile(1, pixels, 2), streams=4)
    assert code.streams == max(1, min(4, code.host.most_rows(2) // pixels)) and (code.streams > 1 or pixels > 1)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("kernel", "groups", "gap"), [((1, 9), 1, 0), ((3, 3), 1, 0), ((1, 1), 3, 7), ((2, 1), 1, 5)])
def test_windows_of_a_single_pixel_read_their_weights_in_any_order(
    level: str, kernel: Pair, groups: int, gap: int
) -> None:
    check(level, (1, 1, 1), (groups * 260, groups * 24), kernel, groups=groups, gap=gap, streams=4)


def test_weights_that_are_used_again_or_lie_near_are_read_one_after_the_other() -> None:
    host = describe("avx2")
    host = replace(host, memory=replace(host.memory, streams=4))
    single, several = ConvTile(1, 1, 2), ConvTile(1, 2, 2)
    assert pointwise(host, (1, 1), (1024, 1024), single).streams == 4
    assert pointwise(host, (1, 4), (1024, 1024), several).streams == 1
    assert pointwise(host, (1, 1), (256, 256), single).streams == 1
    assert pointwise(host, (1, 1), (128, 8192), single).streams == 1


@pytest.mark.parametrize("tiles", [1, 2, 3, 9, 500])
def test_the_tiles_of_a_chunk_fetch_a_whole_panel_between_them(tiles: int) -> None:
    kernel = pointwise(describe("avx512"), (1, 2 * tiles), (256, 512), ConvTile(1, 2, 2))
    several = min(tiles, kernel.grid.block[0])
    assert (kernel.fetching == 0) == (several == 1)
    if kernel.fetching:
        parts = 2**kernel.fetching
        assert parts <= several and kernel.panel_floats - parts < parts * (kernel.panel_floats >> kernel.fetching)


@pytest.mark.parametrize("rows", [1, 7, 30])
@pytest.mark.parametrize("columns", [1, 7, 14, 57])
@pytest.mark.parametrize("channels", [1, 16, 17, 255])
@pytest.mark.parametrize("level", ["avx512", "avx2", "sse", "neon"])
def test_a_tile_fits_the_image_and_the_registers(level: str, rows: int, columns: int, channels: int) -> None:
    host = describe(level)
    tile = choose_tile(host, rows, columns, channels)
    assert tile.rows <= rows
    assert tile.columns <= columns
    assert tile.rows * tile.columns * tile.vectors + tile.vectors < host.registers
