"""ONNX operators with index operands: the reference's answers, and its errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import Session, ShapeError
from engine.tensor import Array
from tests.engine.compiler.lowering.agreeing import check, everywhere, net_of
from tests.engine.graph.build import op

RANDOM = np.random.default_rng(29)


def values(*shape: int, dtype: str = "float32") -> Array:
    result: Array = (RANDOM.standard_normal(shape) * 8).astype(dtype)
    return result


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "float32"])
@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_classes_as_vectors(dtype: str, axis: int) -> None:
    index = RANDOM.integers(0 if dtype == "uint8" else -9, 9, (3, 5)).astype(dtype)
    if dtype == "float32":
        index[0, :3] = np.nan, -0.5, 1e30
    for pair in (np.float32([-1.5, np.inf]), np.int64([7, -3]), np.array([False, True])):
        with np.errstate(all="ignore"):
            check([index], op("OneHot", "it", "0", "1", axis=axis, depth=7, values=pair))


def test_vectors_of_classes_with_values_of_the_run_on_any_processor() -> None:
    classes = op("OneHot", "it", "0 1", "2", axis=1, depth=5, labels=("indices", "values"))
    everywhere([RANDOM.integers(-5, 5, (2, 33)), values(2)], classes)


@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_what_is_new_in_a_cache(mode: str, dtype: str) -> None:
    cache, new = values(3, 2, 7, 5, dtype=dtype), values(3, 2, 3, 5, dtype=dtype)
    given = op("TensorScatter", "it", "0 1 2", "3", mode=mode)
    check([cache, new, np.int64([0, 4, 2])], given, op("torch.neg", "more", "1", "4"))


def test_new_keys_that_do_not_fit_a_cache_are_refused_as_by_the_reference() -> None:
    net = net_of([op("TensorScatter", "it", "0 1 2", "3")], [values(2, 1, 4, 3), values(2, 1, 2, 3), np.int64([0, 0])])
    session = Session(net, backend="compiled", cache=None)
    with pytest.raises(ShapeError, match="out of bounds"):
        session.run([values(2, 1, 4, 3), values(2, 1, 2, 3), np.int64([0, 3])])


@pytest.mark.parametrize(("batch", "time"), [(0, 1), (1, 0)])
def test_sequences_of_lengths_of_the_run_backwards(batch: int, time: int) -> None:
    given = op("ReverseSequence", "it", "0 1", "2", batch_axis=batch, time_axis=time)
    for shape in ((4, 4, 3), (1, 1), (4, 4)):
        lengths = np.int64([0, 4, 2, 1])[: shape[0]]
        check([values(*shape), np.minimum(lengths, shape[0])], given)
    with pytest.raises(ShapeError, match="out of range"):
        net = net_of([given], [values(4, 4), np.zeros(4, np.int64)])
        Session(net, backend="compiled", cache=None).run([values(4, 4), np.int64([0, -1, 5, 1])])


def regions(count: int) -> Array:
    result: Array = RANDOM.uniform(-4, 40, (count, 4)).astype(np.float32)
    return result


@pytest.mark.parametrize("places", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("samples", [0, 2])
def test_means_of_regions_whose_images_are_beside_them(places: str, samples: int) -> None:
    given = {"output_height": 3, "output_width": 2, "sampling_ratio": samples, "spatial_scale": 0.5}
    roi = op("RoiAlign", "it", "0 1 2", "3", coordinate_transformation_mode=places, **given)
    check([values(2, 5, 12, 17), regions(9), RANDOM.integers(0, 2, 9)], roi, tolerance=1e-5)


def test_regions_on_any_processor_and_of_an_image_there_is_not() -> None:
    roi = op("RoiAlign", "it", "0 1 2", "3", output_height=2, output_width=3, sampling_ratio=2)
    given = [values(2, 19, 7, 9), regions(3), np.int64([0, 1, 1])]
    everywhere(given, roi, tolerance=1e-5)
    session = Session(net_of([roi], given), backend="compiled", cache=None)
    with pytest.raises(ShapeError, match="out of range"):
        session.run([*given[:2], np.int64([0, 2, 1])])


@pytest.mark.parametrize("aligned", [0, 1])
def test_grids_of_affine_maps(aligned: int) -> None:
    size = (2, 3, 4, 5)
    check([values(2, 2, 3)], op("AffineGrid", "it", "0", "1", size=size, align_corners=aligned), tolerance=1e-6)


def test_patches_laid_down() -> None:
    given: dict[str, Any] = {"image_shape": (7, 8), "block_shape": (2, 3)}
    more: dict[str, Any] = {"dilations": (1, 2), "pads": (0, 1, 1, 0), "strides": (2, 1)}
    check([values(2, 3 * 6, 6 * 6)], op("Col2Im", "it", "0", "1", **given), tolerance=1e-6)
    check([values(1, 2 * 6, 4 * 5)], op("Col2Im", "it", "0", "1", **given, **more), tolerance=1e-6)


@pytest.mark.parametrize("pads", [(1, 1, 1, 1), (0, 1, 0, 1)], ids=str)
def test_deformable_convolutions_with_bias_and_mask(pads: tuple[int, ...]) -> None:
    weight, bias = values(6, 5, 3, 2), values(6)
    rows, columns = 8 + 2 * pads[0] - 2, 7 + 2 * pads[1] - 1
    offset, mask = values(2, 12, rows, columns) / 8, values(2, 6, rows, columns)
    conv = op("DeformConv", "it", "0 1 2", "3", pads=pads, weight=weight, bias=bias, labels=("input", "offset", "mask"))
    check([values(2, 5, 8, 7), offset, mask], conv, tolerance=1e-5)
