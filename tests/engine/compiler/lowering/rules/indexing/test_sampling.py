"""Images read where values say: the reference's answers, whatever the positions are, and nothing beside its memory."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from engine.compiler.codegen.host import describe
from engine.compiler.kernels.images.grid_sample import Sampling
from engine.layers.vision.grid import GridSample
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.compiler.kernels.running import LEVELS, run
from tests.engine.compiler.lowering.rules.indexing.test_gather import kernel_of

RANDOM = np.random.default_rng(31)
MODES = ("bilinear", "nearest", "bicubic")
OUTSIDE = ("zeros", "border", "reflection")
WILD = np.array([np.nan, np.inf, -np.inf, 1e30, -1e9, 3e38, -1.0, 1.0, 0.0], np.float32)


def values(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def places(*shape: int) -> np.ndarray:
    """Positions on the image and around it, some far away or nowhere."""
    wild = RANDOM.choice(WILD, shape)
    return np.where(RANDOM.random(shape) < 0.1, wild, 1.5 * values(*shape)).astype(np.float32)


@pytest.mark.parametrize(("mode", "outside"), [*product(MODES, OUTSIDE)])
@pytest.mark.parametrize("is_on", [False, True])
def test_images_at_the_positions_of_a_grid(mode: str, outside: str, is_on: bool) -> None:
    given = {"mode": mode, "padding_mode": outside, "align_corners": is_on}
    for shape, to in [((1, 1, 1, 1), (1, 1)), ((2, 3, 5, 7), (4, 9)), ((1, 17, 6, 1), (3, 5)), ((3, 32, 2, 9), (1, 4))]:
        grid = places(shape[0], *to, 2)
        assert kernel_of("F.grid_sample", [values(*shape), grid], **given) == "sample"


@pytest.mark.parametrize(("mode", "outside"), [*product(MODES[:2], OUTSIDE)])
@pytest.mark.parametrize("is_on", [False, True])
def test_volumes_at_the_positions_of_a_grid(mode: str, outside: str, is_on: bool) -> None:
    given = {"mode": mode, "padding_mode": outside, "align_corners": is_on}
    for channels in (1, 5):
        x, grid = values(2, channels, 3, 4, 5), places(2, 2, 3, 4, 3)
        assert kernel_of("F.grid_sample", [x, grid], **given) == "sample"


@pytest.mark.parametrize("is_on", [False, True])
@pytest.mark.parametrize("size", [(2, 3, 5, 7), (1, 1, 1, 1), (2, 3, 4, 1, 5)], ids=str)
def test_grids_of_affine_maps(size: tuple[int, ...], is_on: bool) -> None:
    rank = len(size) - 2
    assert kernel_of("F.affine_grid", [values(size[0], rank, rank + 1)], size=size, align_corners=is_on) == "map"


def regions(count: int, batch: int) -> np.ndarray:
    corners = RANDOM.uniform(-5, 60, (count, 4))
    return np.column_stack([RANDOM.integers(0, batch, count), corners]).astype(np.float32)


@pytest.mark.parametrize("is_on", [False, True])
@pytest.mark.parametrize("samples", [-1, 1, 2, 3])
def test_regions(is_on: bool, samples: int) -> None:
    for channels, bins in ((1, (1, 1)), (3, (7, 5)), (17, (2, 3)), (64, (3, 3))):
        given = {"output_size": bins, "spatial_scale": 0.25, "sampling_ratio": samples, "aligned": is_on}
        found = kernel_of("torchvision.ops.RoIAlign", [values(2, channels, 9, 13), regions(7, 2)], **given)
        assert found == "regions"


@pytest.mark.parametrize("wrong", [-1.0, 2.0, 1e30, np.nan, np.inf])
def test_a_region_of_no_image_is_refused_as_the_reference_does(wrong: float) -> None:
    boxes = regions(5, 2)
    boxes[3, 0] = wrong
    given = {"output_size": (2, 2), "spatial_scale": 1.0, "sampling_ratio": 2, "aligned": True}
    assert kernel_of("torchvision.ops.RoIAlign", [values(2, 3, 9, 13), boxes], **given) == "refused"


@pytest.mark.parametrize("wrong", [1e30, np.nan, np.inf, 1e7])
def test_regions_of_too_many_samples_or_none_are_the_references(wrong: float) -> None:
    boxes = regions(5, 2)
    boxes[3, 4] = wrong
    given = {"output_size": (2, 2), "spatial_scale": 1.0, "sampling_ratio": -1, "aligned": True}
    assert kernel_of("torchvision.ops.RoIAlign", [values(2, 3, 9, 13), boxes], **given) in ("refused", "regions")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("at_end", [False, True])
def test_nothing_outside_is_read_or_written(level: str, at_end: bool) -> None:
    for channels, mode, outside in product((1, 3, 16, 17), MODES, OUTSIDE):
        x, grid = values(2, channels, 4, 5), places(2, 3, 7, 2)
        layer = GridSample(mode=mode, padding_mode=outside, align_corners=False)
        kernel = Sampling(
            batch=2, channels=channels, sizes=(4, 5), source=(20 * channels, 1, 5 * channels, channels),
            positions=(3, 7), grid=(42, 14, 2, 1), target=(21 * channels, 21, 7, 1), mode=layer.mode,
            outside=layer.padding_mode, aligns_corners=False, host=describe(level),
        )  # fmt: skip
        source = guarded_array(np.ascontiguousarray(x.transpose(0, 2, 3, 1)), at_end=at_end)
        target = guarded_array(np.zeros((2, channels, 3, 7), np.float32), at_end=at_end)
        run(kernel, level, [source, guarded_array(grid, at_end=at_end), target])
        np.testing.assert_allclose(target, layer.forward(x, grid), rtol=1e-5, atol=1e-5)
