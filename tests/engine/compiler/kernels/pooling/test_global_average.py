"""Global pooling against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.compiler.codegen.host import describe
from engine.compiler.kernels.expr import Operand, apply
from engine.compiler.kernels.kernel import Epilogue, Strides
from engine.compiler.kernels.pooling.global_average import GlobalAverage, Of
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.compiler.kernels.running import LEVELS, dense, run


def averaging(level: str, shape: tuple[int, int, int, int], pitch: int, **given: Any) -> GlobalAverage:
    """Return the kernel for images (n, rows, columns, channels), pixels ``pitch`` floats apart, to (n, channels)."""
    n, rows, columns, channels = shape
    return GlobalAverage(
        batch=n,
        rows=rows,
        columns=columns,
        channels=channels,
        source=dense(rows, columns, pitch),
        target=Strides(channels, 0, 0),
        host=describe(level),
        **given,
    )


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("shape", [(1, 7, 7, 1280), (3, 1, 1, 5), (2, 4, 9, 16), (2, 6, 3, 149), (1, 56, 57, 24)])
@pytest.mark.parametrize("gap", [0, 3])
def test_means_of_any_image(level: str, shape: tuple[int, int, int, int], gap: int) -> None:
    n, rows, columns, channels = shape
    pitch = channels + gap
    pixels = np.random.default_rng(5).standard_normal((n, rows, columns, pitch), np.float32) + 1
    shift = np.random.default_rng(6).standard_normal(channels, np.float32)
    epilogue = Epilogue(apply("add", Operand(0), Operand(1)), (Strides(0, 0, 0),))
    kernel = averaging(level, shape, pitch, epilogue=epilogue)
    image = guarded_array(pixels.reshape(-1)[: pixels.size - gap])
    means = guarded_array(np.zeros((n, channels), np.float32))
    run(kernel, level, [image, means, guarded_array(shift)])
    wanted = pixels[..., :channels].mean(axis=(1, 2), dtype=np.float64) + shift
    np.testing.assert_allclose(means, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("shape", [(1, 7, 7, 1280), (3, 1, 1, 5), (2, 4, 9, 16), (2, 6, 3, 149), (1, 2, 4099, 24)])
def test_what_pixels_differ_by_from_numbers(level: str, shape: tuple[int, int, int, int]) -> None:
    n, rows, columns, channels = shape
    pixels = np.random.default_rng(7).standard_normal(shape, np.float32) + 3
    centres = np.random.default_rng(8).standard_normal((n, channels), np.float32) + 3
    kernel = averaging(level, shape, channels, of="spread")
    spreads = guarded_array(np.zeros((n, channels), np.float32))
    run(kernel, level, [guarded_array(pixels), guarded_array(centres), spreads])
    wanted = ((pixels - centres[:, None, None].astype(np.float64)) ** 2).mean(axis=(1, 2))
    np.testing.assert_allclose(spreads, wanted, rtol=2e-6)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("of", ["sum", "max", "min"])
@pytest.mark.parametrize("shape", [(1, 7, 7, 1280), (3, 1, 1, 5), (2, 4, 9, 16), (2, 6, 3, 149), (1, 2, 4099, 24)])
def test_sums_and_extremes(level: str, of: Of, shape: tuple[int, int, int, int]) -> None:
    n, rows, columns, channels = shape
    pixels = np.random.default_rng(9).standard_normal(shape, np.float32) - 5 * (of == "max") + 5 * (of == "min")
    pixels[-1, -1, :, channels // 2] = np.nan
    kernel = averaging(level, shape, channels, of=of)
    found = guarded_array(np.zeros((n, channels), np.float32))
    run(kernel, level, [guarded_array(pixels), found])
    wanted = getattr(pixels.astype(np.float64), of)(axis=(1, 2))
    rounding = 3e-7 * np.nanmax(np.abs(pixels).sum(axis=(1, 2))) if of == "sum" else 0
    np.testing.assert_allclose(found, wanted, rtol=0, atol=rounding)
