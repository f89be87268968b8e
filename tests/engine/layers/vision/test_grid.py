"""Grids and regions of interest: what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

from engine import TensorSpec
from tests.engine.layers.refusals import build, refusal, tensor

IMAGE, GRID, ROIS = tensor(2, 3, 4, 5), tensor(2, 6, 7, 2), tensor(3, 5)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"mode": "area"}, "unknown mode: found area, expected bilinear, nearest, bicubic"),
        ({"padding_mode": "mirror"}, "unknown padding_mode: found mirror, expected zeros, border, reflection"),
    ],
)
def test_unknown_modes_are_refused(params: dict[str, str], message: str) -> None:
    assert refusal("F.grid_sample", IMAGE, GRID, **params) == message


@pytest.mark.parametrize(
    ("input", "grid", "message"),
    [
        (tensor(3, 4, 5), GRID, "input has the wrong number of dimensions: found [3, 4, 5], expected 4 or 5"),
        (IMAGE, tensor(2, 6, 7, 3), "grid does not fit: found [2, 6, 7, 3], expected [2, ?, ?, 2]"),
        (IMAGE, tensor(1, 6, 7, 2), "grid does not fit: found [1, 6, 7, 2], expected [2, ?, ?, 2]"),
        (
            IMAGE,
            tensor(2, 6, 7, 2, dtype="float64"),
            "grid has another dtype than input: found float64, expected float32",
        ),
        (tensor(2, 3, 0, 5), GRID, "input is empty: found [2, 3, 0, 5]"),
    ],
)
def test_grids_that_do_not_fit_are_refused(input: TensorSpec, grid: TensorSpec, message: str) -> None:
    assert refusal("F.grid_sample", input, grid) == message


def test_volumes_are_not_sampled_bicubically() -> None:
    message = refusal("F.grid_sample", tensor(1, 1, 2, 2, 2), tensor(1, 1, 1, 1, 3), mode="bicubic")
    assert message == "input has the wrong number of dimensions: found [1, 1, 2, 2, 2], expected 4"


@pytest.mark.parametrize(
    ("theta", "size", "message"),
    [
        (tensor(2, 2, 3), (2, 3, 4), "size does not describe images: found [2, 3, 4], expected 4 or 5 numbers"),
        (tensor(2, 3, 4), (2, 3, 4, 5), "theta does not fit the size: found [2, 3, 4], expected [2, 2, 3]"),
        (tensor(1, 2, 3), (2, 3, 4, 5), "theta does not fit the size: found [1, 2, 3], expected [2, 2, 3]"),
    ],
)
def test_affine_maps_that_do_not_fit_are_refused(theta: TensorSpec, size: tuple[int, ...], message: str) -> None:
    assert refusal("F.affine_grid", theta, size=size) == message


@pytest.mark.parametrize(
    ("rois", "output_size", "message"),
    [
        (tensor(3, 4), (2, 2), "ROIs are not rows of 5: found [3, 4], expected [?, 5]"),
        (ROIS, (2, 0), "output_size does not fit: found [2, 0], expected 2 numbers, at least 1"),
        (
            tensor(3, 5, dtype="float64"),
            (2, 2),
            "rois has another dtype than input: found float64, expected float32",
        ),
    ],
)
def test_regions_that_do_not_fit_are_refused(rois: TensorSpec, output_size: tuple[int, ...], message: str) -> None:
    assert refusal("torchvision.ops.RoIAlign", IMAGE, rois, output_size=output_size) == message


def test_a_region_of_another_batch_is_refused() -> None:
    layer = build("torchvision.ops.RoIAlign", 2, output_size=2)
    rois = np.array([[2, 0, 0, 1, 1]], np.float32)
    with pytest.raises(ValueError) as error:
        layer.forward([np.zeros((2, 3, 4, 5), np.float32), rois])
    assert str(error.value) == "the image index of a roi is out of range: found images 2 to 2, expected 0 to 1"


@pytest.mark.parametrize(
    ("dets", "scores", "message"),
    [
        (tensor(3, 5), tensor(3), "detections are not rows of 4: found [3, 5], expected [?, 4]"),
        (tensor(3, 4), tensor(2), "the numbers of scores and boxes differ: found [2], expected [3]"),
    ],
)
def test_boxes_that_do_not_fit_are_refused(dets: TensorSpec, scores: TensorSpec, message: str) -> None:
    assert refusal("pnnx.custom_op.torchvision.nms", dets, scores, arg_2=0.5) == message
