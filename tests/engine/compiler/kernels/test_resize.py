"""Resampling against the reference layer, on images that end at a guard page."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.compiler.codegen.host import describe
from engine.compiler.kernels.expr import Operand, apply
from engine.compiler.kernels.images.resize import Resize
from engine.compiler.kernels.kernel import Epilogue
from engine.layers.vision.interpolate import Interpolate
from engine.layers.vision.taps import KERNELS, find_step
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.compiler.kernels.running import LEVELS, dense, run


def check(
    level: str,
    shape: tuple[int, int, int, int],
    size: tuple[int, int],
    mode: str,
    align_corners: bool = False,
    gap: int = 0,
    epilogue: bool = False,
) -> None:
    """Resample an image (n, h, w, c) whose pixels lie ``gap`` floats apart."""
    n, h, w, c = shape
    pitch = c + gap
    pixels = np.random.default_rng(2).standard_normal((n, h, w, pitch), np.float32)
    layer = Interpolate(size=size, mode=mode, align_corners=align_corners or None)
    wanted = layer.forward(np.ascontiguousarray(pixels[..., :c].transpose(0, 3, 1, 2))).transpose(0, 2, 3, 1)
    float32 = np.dtype(np.float32)
    taps = [
        KERNELS[mode](old, new, find_step(old, new, None, align_corners, float32), align_corners)
        for old, new in zip((h, w), size, strict=True)
    ]
    out = dense(*size, c)
    options: dict[str, Any] = {}
    if epilogue:
        options["epilogue"] = Epilogue(apply("add", Operand(0), Operand(1)), (out,))
    kernel = Resize(
        batch=n,
        rows=size[0],
        columns=size[1],
        channels=c,
        taps=(len(taps[0].indices), len(taps[1].indices)),
        is_weighted=taps[0].weights is not None,
        source=dense(h, w, pitch),
        target=out,
        host=describe(level),
        **options,
    )
    table = kernel.pack(*((each.indices, each.weights) for each in taps))
    image = guarded_array(pixels.reshape(-1)[: pixels.size - gap])
    result = guarded_array(np.full(wanted.shape, 7, np.float32))
    other = np.random.default_rng(4).standard_normal(wanted.shape, np.float32)
    extras = [guarded_array(other)] if epilogue else []
    run(kernel, level, [image, guarded_array(table), result, *extras])
    np.testing.assert_allclose(result, wanted + other if epilogue else wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(1, 1), (3, 13), (10, 14), (17, 5)])
def test_any_size(level: str, mode: str, size: tuple[int, int]) -> None:
    check(level, (2, 5, 7, 19), size, mode)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("channels", [1, 3, 16, 21, 85, 150])
def test_any_number_of_channels(level: str, channels: int) -> None:
    check(level, (1, 4, 5, channels), (9, 8), "bilinear")
    check(level, (1, 4, 5, channels), (8, 10), "nearest")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(1, 9), (9, 1), (8, 12)])
def test_corners_may_meet(level: str, mode: str, size: tuple[int, int]) -> None:
    check(level, (1, 4, 6, 18), size, mode, align_corners=True)


@pytest.mark.parametrize("level", LEVELS)
def test_pixels_may_lie_apart(level: str) -> None:
    check(level, (2, 4, 6, 18), (7, 9), "bilinear", gap=5)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("channels", [37, 130])
def test_the_epilogue_sees_the_element_it_belongs_to(level: str, channels: int) -> None:
    check(level, (2, 4, 6, channels), (7, 9), "bilinear", epilogue=True)


@pytest.mark.parametrize("shape", [(1, 1, 3000, 64), (1, 60, 70, 21)])
def test_work_falls_into_chunks_that_together_do_all_of_it(shape: tuple[int, int, int, int]) -> None:
    check(LEVELS[0], shape, (2 * shape[1], 2 * shape[2]), "bilinear")
