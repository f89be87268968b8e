"""Pooling: the kernels against the reference layers, on images that end at a guard page."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.compiler.codegen.host import describe
from engine.compiler.kernels.expr import Operand, apply
from engine.compiler.kernels.kernel import Epilogue
from engine.compiler.kernels.pooling.pool import Pool
from engine.compiler.kernels.windows import WindowAxis
from engine.layers.pooling.adaptive_pool import AdaptiveAvgPool, AdaptiveMaxPool
from engine.layers.pooling.max_pool import MaxPool
from engine.layers.pooling.pool import AvgPool
from engine.tensor import Array
from tests.combining import together
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.compiler.kernels.running import LEVELS, dense, run


def pooled(layer: Any, image: Array) -> Array:
    """Return the layer's result for (n, h, w, c)."""
    return np.ascontiguousarray(layer.forward(np.ascontiguousarray(image.transpose(0, 3, 1, 2))).transpose(0, 2, 3, 1))


def axes(layer: Any, image: Array, shape: tuple[int, ...]) -> dict[str, WindowAxis]:
    """Return the windows of a layer on the image, for an output shape."""
    sizes = zip(image.shape[1:3], shape[1:3], strict=True)
    if hasattr(layer, "output_size"):
        down, across = (WindowAxis(size=size, count=count, is_adaptive=True) for size, count in sizes)
    else:
        down, across = (
            WindowAxis(
                size=size,
                count=count,
                kernel=window.kernel,
                stride=window.stride,
                dilation=window.dilation,
                padding=window.before,
            )
            for (size, count), window in zip(sizes, layer.windows, strict=True)
        )
    return {"down": down, "across": across}


def check(level: str, layer: Any, image: Array, **options: Any) -> None:
    """Run the kernel of a layer on a guarded copy of an image (n, h, w, c)."""
    wanted = pooled(layer, image)
    kernel = Pool(
        mode="max" if "Max" in type(layer).__name__ else "average",
        batch=len(image),
        channels=image.shape[3],
        **axes(layer, image, wanted.shape),
        source=dense(*image.shape[1:]),
        target=dense(*wanted.shape[1:]),
        host=describe(level),
        **options,
    )
    dtype = image.dtype.name
    result = guarded_array(np.full(wanted.shape, 7, dtype), dtype=dtype)
    run(kernel, level, [guarded_array(image, dtype=dtype), result])
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)


def image(*shape: int) -> Array:
    """Return random pixels, (n, h, w, c)."""
    return np.random.default_rng(3).standard_normal(shape, np.float32)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("channels", [1, 3, 20, 85])
def test_maxima_of_bytes(level: str, dtype: str, channels: int) -> None:
    numbers = np.random.default_rng(4).integers(0, 256, (2, 9, 7, channels)).astype(np.uint8).view(dtype)
    for size in ((3, 3), (9, 2), (5, 17)):
        padding = tuple(each // 2 for each in size)
        layer = MaxPool(kernel_size=size, stride=(2, 2), padding=padding, dilation=(1, 1), spatial_rank=2)
        check(level, layer, numbers, numbers=dtype, epilogue=Epilogue(dtypes=(dtype,)))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("layer", [MaxPool, AvgPool])
@pytest.mark.parametrize("channels", [1, 3, 20, 64, 85])
def test_any_number_of_channels(level: str, layer: Any, channels: int) -> None:
    check(level, layer(spatial_rank=2, kernel_size=(3,), stride=(2,), padding=(1,)), image(2, 9, 8, channels))


@together(
    ("level", LEVELS),
    ("layer", [MaxPool, AvgPool]),
    ("ceil_mode", [False, True]),
    (
        "kernel,stride,padding",
        [
            ((2, 2), (2, 2), (0, 0)),
            ((3, 3), (2, 2), (0, 0)),
            ((5, 5), (1, 1), (2, 2)),
            ((13, 13), (1, 1), (6, 6)),
            ((1, 4), (1, 3), (0, 2)),
            ((4, 1), (3, 1), (1, 0)),
            ((2, 3), (5, 4), (1, 1)),
            ((10, 2), (2, 3), (5, 0)),
        ],
    ),
)
def test_any_window(
    level: str, layer: Any, ceil_mode: bool, kernel: tuple[int, ...], stride: tuple[int, ...], padding: tuple[int, ...]
) -> None:
    built = layer(spatial_rank=2, kernel_size=kernel, stride=stride, padding=padding, ceil_mode=ceil_mode)
    check(level, built, image(1, 12, 11, 21))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("kernel", "dilation", "padding"), [((3,), (2,), (1,)), ((2,), (3,), (1,)), ((3, 2), (1, 4), (0, 1))]
)
def test_dilated_maxima(
    level: str, kernel: tuple[int, ...], dilation: tuple[int, ...], padding: tuple[int, ...]
) -> None:
    layer = MaxPool(spatial_rank=2, kernel_size=kernel, stride=(1,), dilation=dilation, padding=padding, ceil_mode=True)
    check(level, layer, image(1, 5, 7, 18))
    check(level, layer, image(1, 5, 4, 18))


def test_a_window_with_all_its_taps_in_the_padding_gives_the_lowest_value() -> None:
    layer = MaxPool(spatial_rank=2, kernel_size=(2,), stride=(1,), dilation=(3,), padding=(1,))
    check(LEVELS[0], layer, image(1, 2, 2, 4))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kernel", [2, 3, 4, 5])
def test_a_nan_anywhere_in_a_window_is_its_maximum(level: str, kernel: int) -> None:
    pixels = image(1, 9, 9, 17)
    for k in range(9):
        pixels[0, k, (4 * k) % 9, k] = [np.nan, -np.nan][k % 2]
    pixels[0, :, :, 16] = -np.inf
    check(level, MaxPool(spatial_rank=2, kernel_size=(kernel,), stride=(1,), padding=(kernel // 2,)), pixels)


@pytest.mark.parametrize("level", LEVELS)
def test_padding_may_be_left_out_of_the_mean(level: str) -> None:
    layer = AvgPool(
        spatial_rank=2, kernel_size=(4,), stride=(3,), padding=(2,), ceil_mode=True, count_include_pad=False
    )
    check(level, layer, image(1, 11, 12, 33), counts_padding=False)


def test_the_divisor_may_be_given() -> None:
    layer = AvgPool(spatial_rank=2, kernel_size=(3,), padding=(1,), divisor_override=5)
    check(LEVELS[0], layer, image(1, 7, 8, 33), divisor=5)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("layer", [AdaptiveAvgPool, AdaptiveMaxPool])
@pytest.mark.parametrize("size", [(1, 1), (3, 5), (6, 6), (13, 29)])
def test_windows_that_follow_from_the_output_size(level: str, layer: Any, size: tuple[int, int]) -> None:
    check(level, layer(spatial_rank=2, output_size=size), image(2, 7, 11, 35))


@pytest.mark.parametrize("layer", [MaxPool, AvgPool])
def test_wide_images(layer: Any) -> None:
    check(LEVELS[0], layer(spatial_rank=2, kernel_size=(3,), stride=(2,), padding=(1,)), image(1, 3, 301, 65))


def test_adaptive_windows_on_wide_images() -> None:
    check(LEVELS[0], AdaptiveAvgPool(spatial_rank=2, output_size=(2, 97)), image(1, 3, 301, 65))


def test_a_wide_window_is_walked_in_a_loop() -> None:
    check(LEVELS[0], AvgPool(spatial_rank=2, kernel_size=(17, 19), stride=(2, 3), padding=(8,)), image(1, 20, 40, 5))


def test_a_sum_of_many_columns_is_accumulated_from_partial_sums() -> None:
    check(LEVELS[0], AvgPool(spatial_rank=2, kernel_size=(1, 100_001), stride=(1, 7)), 1 + image(1, 1, 100_016, 2))


@pytest.mark.parametrize("level", LEVELS)
def test_the_epilogue_sees_the_element_it_belongs_to(level: str) -> None:
    pixels, other = image(2, 8, 6, 37), image(2, 4, 3, 37)
    code = Pool(
        mode="max",
        batch=2,
        channels=37,
        down=WindowAxis(size=8, count=4, kernel=2, stride=2),
        across=WindowAxis(size=6, count=3, kernel=2, stride=2),
        source=dense(*pixels.shape[1:]),
        target=dense(*other.shape[1:]),
        host=describe(level),
        epilogue=Epilogue(apply("mul", Operand(0), Operand(1)), (dense(*other.shape[1:]),)),
    )
    result = guarded_array(np.zeros_like(other))
    run(code, level, [guarded_array(pixels), result, guarded_array(other)])
    np.testing.assert_array_equal(result, pixels.reshape(2, 4, 2, 3, 2, 37).max(axis=(2, 4)) * other)
