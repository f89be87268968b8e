"""Volumes: every kernel for planes against the reference layers, between guard pages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.compiler.codegen.host import describe
from engine.compiler.kernels.convolution.conv import Conv
from engine.compiler.kernels.convolution.depthwise import Depthwise
from engine.compiler.kernels.convolution.depthwise_tile import choose_tile as choose_depthwise_tile
from engine.compiler.kernels.convolution.grouped import GroupedConv, choose_grouped_tile
from engine.compiler.kernels.convolution.tiles import choose_tile
from engine.compiler.kernels.images.resize import Resize
from engine.compiler.kernels.kernel import Kernel
from engine.compiler.kernels.pooling.pool import Pool
from engine.compiler.kernels.windows import WindowAxis
from engine.layers.convolution.conv import Conv as ConvLayer
from engine.layers.pooling.adaptive_pool import AdaptiveAvgPool, AdaptiveMaxPool
from engine.layers.pooling.max_pool import MaxPool
from engine.layers.pooling.pool import AvgPool
from engine.layers.vision.interpolate import Interpolate
from engine.tensor import Array
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.compiler.kernels.running import LEVELS, dense, run

RANDOM = np.random.default_rng(5)


def planes_of(volume: Array) -> Array:
    """Return (N, C, D, H, W) as planes (N * D, H, W, C)."""
    n, c, d, h, w = volume.shape
    return np.ascontiguousarray(volume.transpose(0, 2, 3, 4, 1)).reshape(n * d, h, w, c)


def check(kernel: Kernel, level: str, volume: Array, wanted: Array, *constants: Array, tolerance: float = 1e-5) -> None:
    """Run a kernel on memory that begins or ends at a guard page."""
    image, target, at_end = planes_of(volume), planes_of(wanted), bool(RANDOM.integers(2))
    result = guarded_array(np.full(target.shape, 7, np.float32), at_end=at_end)
    run(kernel, level, [*(guarded_array(each, at_end=at_end) for each in (image, *constants)), result])
    np.testing.assert_allclose(result, target, rtol=1e-5, atol=tolerance)


WINDOWS = [
    ((3, 3, 3), (1, 1, 1), (1, 1, 1), 1),
    ((5, 1, 1), (1, 1, 1), (1, 1, 1), 2),
    ((1, 3, 3), (2, 1, 2), (1, 1, 1), 0),
    ((3, 2, 1), (2, 2, 1), (1, 1, 1), 1),
    ((3, 1, 2), (1, 1, 1), (3, 1, 2), 3),
    ((2, 1, 1), (3, 1, 1), (1, 1, 1), 0),
    ((2, 1, 1), (1, 1, 1), (4, 1, 1), 5),
    ((1, 1, 1), (1, 1, 1), (1, 1, 1), 3),
]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("kernel", "stride", "dilation", "padding", "groups"),
    [
        *((*each, 1) for each in WINDOWS),
        (*WINDOWS[0], 2),
        *((*each, 10) for each in WINDOWS[:5]),
        *((*each, 20) for each in WINDOWS[:4]),
    ],
    ids=str,
)
def test_a_convolution_leaves_out_what_lies_beyond_the_planes(
    level: str, kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...], padding: int, groups: int
) -> None:
    """Only planes are unpadded: zeros around rows and columns are in the image."""
    volume = RANDOM.standard_normal((2, 20, 5, 6, 7), np.float32)
    weight = RANDOM.standard_normal((40 if groups < 20 else 20, 20 // groups, *kernel), np.float32)
    bias = RANDOM.standard_normal(len(weight), np.float32)
    layer = ConvLayer(spatial_rank=3, stride=stride, padding=(padding, 0, 0), dilation=dilation, groups=groups)
    wanted = layer.forward(volume, weight, bias)
    (planes, rows, columns), host = wanted.shape[2:], describe(level)
    depth = WindowAxis(size=5, count=planes, kernel=kernel[0], stride=stride[0], dilation=dilation[0], padding=padding)
    geometry: dict[str, Any] = {
        "batch": 2 * planes,
        "rows": rows,
        "columns": columns,
        "kernel": kernel[1:],
        "stride": stride[1:],
        "dilation": dilation[1:],
        "source": dense(6, 7, 20),
        "target": dense(rows, columns, len(weight)),
        "depth": depth,
        "host": host,
    }
    code: Conv | Depthwise
    if groups == 20:
        tile = choose_depthwise_tile(host, 1, columns, kernel[1:], stride[1:], dilation[1:])
        code = Depthwise(channels=20, tile=tile, **geometry)
    elif groups == 10:
        taps = planes * kernel[1], kernel[2]
        tile_ = choose_grouped_tile(host, rows, columns, taps, stride[2], dilation[2], 2)
        code = GroupedConv(in_channels=2, out_channels=40, outputs=4, groups=1, tile=tile_, **geometry)
    else:
        out_channels = len(weight) // groups
        code = Conv(
            in_channels=20 // groups,
            out_channels=out_channels,
            groups=groups,
            tile=choose_tile(host, rows, columns, out_channels),
            **geometry,
        )
    packed = code.pack(weight.reshape(*weight.shape[:2], -1, kernel[2]), bias)
    check(code, level, volume, wanted, packed, tolerance=1e-4)


@pytest.mark.parametrize("level", LEVELS)
def test_a_long_row_of_taps_is_walked(level: str) -> None:
    volume, weight = (RANDOM.standard_normal(shape, np.float32) for shape in ((1, 5, 3, 9, 40), (5, 1, 3, 9, 30)))
    wanted = ConvLayer(spatial_rank=3, padding=(1, 0, 0), groups=5).forward(volume, weight)
    code = Depthwise(
        batch=3,
        rows=1,
        columns=11,
        channels=5,
        kernel=(9, 30),
        stride=(1, 1),
        dilation=(1, 1),
        source=dense(9, 40, 5),
        target=dense(1, 11, 5),
        tile=choose_depthwise_tile(describe(level), 1, 11, (9, 30), (1, 1), (1, 1)),
        depth=WindowAxis(size=3, count=3, kernel=3, padding=1),
        host=describe(level),
    )
    check(code, level, volume, wanted, code.pack(weight.reshape(5, 1, 27, 30), None), tolerance=1e-4)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("layer", "kernel", "stride", "padding", "given"),
    [
        (MaxPool, (2, 2, 2), (2, 2, 2), 0, {}),
        (MaxPool, (3, 3, 3), (1, 2, 1), 1, {"ceil_mode": True}),
        (MaxPool, (4, 1, 1), (1, 1, 1), 2, {}),
        (AvgPool, (3, 3, 3), (1, 2, 1), 1, {"count_include_pad": False}),
        (AvgPool, (5, 1, 3), (3, 1, 1), 2, {"ceil_mode": True}),
        (AvgPool, (4, 2, 1), (1, 1, 1), 2, {"divisor_override": 3}),
    ],
)
def test_pooling_folds_planes(
    level: str, layer: Any, kernel: tuple[int, ...], stride: tuple[int, ...], padding: int, given: dict[str, Any]
) -> None:
    paddings = (padding, min(padding // 2, kernel[1] - 1), 0)
    pool = layer(spatial_rank=3, kernel_size=kernel, stride=stride, padding=paddings, **given)
    volume = RANDOM.standard_normal((2, 21, 6, 5, 7), np.float32)
    wanted = pool.forward(volume)
    axes = [
        WindowAxis(size=size, count=count, kernel=each.kernel, stride=each.stride, padding=each.before)
        for size, count, each in zip(volume.shape[2:], wanted.shape[2:], pool.windows, strict=True)
    ]
    options = {}
    if layer is AvgPool:
        options = {"counts_padding": pool.count_include_pad, "divisor": pool.divisor_override}
    check(_pool(level, "average" if options else "max", volume, wanted, axes, **options), level, volume, wanted)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("layer", [AdaptiveMaxPool, AdaptiveAvgPool])
@pytest.mark.parametrize("sizes", [(1, 2, 3), (4, 5, 1), (7, 9, 2)])
def test_adaptive_windows_overlap_along_planes(level: str, layer: Any, sizes: tuple[int, ...]) -> None:
    volume = RANDOM.standard_normal((2, 18, 5, 6, 4), np.float32)
    wanted = layer(spatial_rank=3, output_size=sizes).forward(volume)
    axes = [WindowAxis(size=a, count=b, is_adaptive=True) for a, b in zip(volume.shape[2:], sizes, strict=True)]
    check(_pool(level, "max" if layer is AdaptiveMaxPool else "average", volume, wanted, axes), level, volume, wanted)


def _pool(level: str, mode: Any, volume: Array, wanted: Array, axes: list[WindowAxis], **options: Any) -> Pool:
    return Pool(
        mode=mode,
        batch=2 * wanted.shape[2],
        channels=volume.shape[1],
        depth=axes[0],
        down=axes[1],
        across=axes[2],
        source=dense(*volume.shape[3:], volume.shape[1]),
        target=dense(*wanted.shape[3:], volume.shape[1]),
        host=describe(level),
        **options,
    )


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("mode", ["nearest", "trilinear"])
@pytest.mark.parametrize("sizes", [(1, 4, 9), (7, 5, 4), (10, 1, 3)])
def test_planes_are_resampled(level: str, mode: str, sizes: tuple[int, int, int]) -> None:
    volume, layer = RANDOM.standard_normal((2, 19, 5, 4, 6), np.float32), Interpolate(size=sizes, mode=mode)
    wanted = layer.forward(volume)
    taps = [each for _, each in layer.taps(volume.shape, volume.dtype, sizes)]
    kernel = Resize(
        batch=2 * sizes[0],
        rows=sizes[1],
        columns=sizes[2],
        channels=19,
        taps=(len(taps[1].indices), len(taps[2].indices)),
        planes=(5, sizes[0]),
        plane_taps=len(taps[0].indices),
        is_weighted=mode == "trilinear",
        source=dense(4, 6, 19),
        target=dense(*sizes[1:], 19),
        host=describe(level),
    )
    check(kernel, level, volume, wanted, kernel.pack(*((each.indices, each.weights) for each in taps)))
