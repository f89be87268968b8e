"""Depthwise convolution: every size, stride, dilation and processor level against the sum written out in float64."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compiler.codegen.host import describe
from engine.compiler.kernels.convolution.depthwise import Depthwise
from engine.compiler.kernels.convolution.depthwise_tile import choose_tile
from engine.compiler.kernels.expr import Operand, apply
from engine.compiler.kernels.kernel import Epilogue
from tests.engine.compiler.kernels.convolution.summed import convolved
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.compiler.kernels.running import LEVELS, dense, run


def check(
    level: str,
    shape: tuple[int, int, int, int],
    kernel: tuple[int, int],
    *,
    stride: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    gap: int = 0,
    epilogue: bool = False,
) -> None:
    """Run a kernel whose image and target end at a guard page; pixels lie ``gap`` floats apart."""
    n, rows, columns, channels = shape
    random = np.random.default_rng(7)
    height = (rows - 1) * stride[0] + (kernel[0] - 1) * dilation[0] + 1
    width = (columns - 1) * stride[1] + (kernel[1] - 1) * dilation[1] + 1
    pitch = channels + gap
    image = random.standard_normal((n, height, width, pitch), np.float32)
    weight = random.standard_normal((channels, 1, *kernel), np.float32)
    bias = random.standard_normal(channels, np.float32)
    other = random.standard_normal((n, rows, columns, channels), np.float32)
    host = describe(level)
    out = dense(rows, columns, channels)
    code = Depthwise(
        batch=n,
        rows=rows,
        columns=columns,
        channels=channels,
        kernel=kernel,
        stride=stride,
        dilation=dilation,
        source=dense(height, width, pitch),
        target=out,
        tile=choose_tile(host, rows, columns, kernel, stride, dilation),
        host=host,
        epilogue=Epilogue(apply("add", apply("relu", Operand(0)), Operand(1)), (out,)) if epilogue else Epilogue(),
    )
    # No gap follows the last pixel: the image ends with its last channel.
    flat = guarded_array(image.reshape(-1)[: image.size - gap])
    packed = guarded_array(code.pack(weight, bias))
    result = guarded_array(np.full(other.shape, np.nan, np.float32))
    run(code, level, [flat, packed, result, *([guarded_array(other)] if epilogue else [])])
    wanted = convolved(image[..., :channels], weight, bias, stride, dilation, channels)
    if epilogue:
        wanted = np.maximum(wanted, 0) + other
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5 * np.sqrt(kernel[0] * kernel[1]))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("channels", [1, 3, 8, 21, 32])
def test_any_number_of_channels(level: str, channels: int) -> None:
    check(level, (2, 5, 7, channels), (3, 3))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("size", [(1, 1), (1, 19), (19, 1), (2, 3), (9, 17)])
@pytest.mark.parametrize("stride", [1, 2])
def test_any_size(level: str, size: tuple[int, int], stride: int) -> None:
    check(level, (1, *size, 20), (3, 3), stride=(stride, stride))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kernel", [(1, 1), (5, 5), (7, 7), (1, 9), (9, 1), (2, 4)])
def test_any_window(level: str, kernel: tuple[int, int]) -> None:
    check(level, (1, 6, 11, 18), kernel)


@pytest.mark.parametrize("level", LEVELS)
def test_a_window_too_large_to_write_out(level: str) -> None:
    check(level, (1, 3, 5, 18), (21, 23))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("stride", "dilation"), [((3, 1), (1, 2)), ((2, 2), (3, 3)), ((1, 4), (2, 1)), ((5, 5), (1, 1))]
)
def test_any_stride_and_dilation(level: str, stride: tuple[int, int], dilation: tuple[int, int]) -> None:
    check(level, (1, 7, 6, 19), (3, 3), stride=stride, dilation=dilation)


@pytest.mark.parametrize("level", LEVELS)
def test_pixels_may_lie_apart(level: str) -> None:
    check(level, (2, 5, 6, 10), (3, 3), gap=7)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("channels", [48, 7])
def test_the_epilogue_sees_the_element_it_belongs_to(level: str, channels: int) -> None:
    check(level, (2, 6, 9, channels), (5, 5), epilogue=True)


@pytest.mark.parametrize("shape", [(1, 56, 56, 144), (1, 7, 7, 960), (4, 7, 7, 320)])
def test_work_falls_into_chunks_that_together_do_all_of_it(shape: tuple[int, int, int, int]) -> None:
    check(LEVELS[-1], shape, (3, 3))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize(("channels", "kernel"), [(1, (3, 3)), (19, (3, 3)), (35, (5, 2)), (16, (31, 31))])
def test_sums_of_bytes_are_exact(level: str, dtype: str, channels: int, kernel: tuple[int, int]) -> None:
    random, host, (rows, columns) = np.random.default_rng(8), describe(level), (3, 5)
    image = random.integers(0, 256, (2, rows + kernel[0] - 1, columns + kernel[1] - 1, channels))
    image = image.astype(np.uint8).view(dtype)
    weight = random.integers(-30, 30, (channels, 1, *kernel)).astype(np.float32)
    bias = random.integers(-999, 999, channels).astype(np.float32)
    code = Depthwise(
        batch=2,
        rows=rows,
        columns=columns,
        channels=channels,
        kernel=kernel,
        stride=(1, 1),
        dilation=(1, 1),
        source=dense(*image.shape[1:]),
        target=dense(rows, columns, channels),
        tile=choose_tile(host, rows, columns, kernel, (1, 1), (1, 1)),
        numbers=dtype,
        host=host,
        epilogue=Epilogue(apply("limit", Operand(0), 0.0, 255.0), (), ("uint8",)),
    )
    result = guarded_array(np.zeros((2, rows, columns, channels), np.uint8), dtype="uint8")
    run(code, level, [guarded_array(image, dtype=dtype), guarded_array(code.pack(weight, bias)), result])
    wanted = convolved(image.astype(np.float64), weight, bias, (1, 1), (1, 1), channels)
    np.testing.assert_array_equal(result, np.clip(wanted, 0, 255))
