"""Crops at boxes and polygons."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from app.errors import RequestTooLargeError
from app.images.decoded import DecodedPicture
from app.pipelines.crops import Crop, crop_box, crop_polygon

RECORD = Path(__file__).parents[2] / "data" / "pipelines" / "crops.npz"
PICTURE = np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8)


def pixels(crop: Crop | None) -> np.ndarray:
    assert crop is not None
    return np.asarray(crop.decode("RGB", (0, 0, 0), crop.size))


def at_box(box: Any, margin: float = 0.0, turn: int = 0) -> Crop | None:
    return crop_box(DecodedPicture(Image.fromarray(PICTURE)), box, margin, turn, "a crop")


def at_polygon(polygon: Any, margin: float = 0.0, turn: int = 0, picture: np.ndarray = PICTURE) -> Crop | None:
    return crop_polygon(DecodedPicture(Image.fromarray(picture)), polygon, margin, turn, "a crop")


@pytest.mark.parametrize("number", range(6))
def test_polygons_are_made_upright_as_rapidocr_does(number: int) -> None:
    with np.load(RECORD) as record:
        picture, polygon, expected = (record[key] for key in ("picture", f"polygon{number}", f"crop{number}"))
    found = pixels(at_polygon(polygon.tolist(), picture=picture))
    assert found.shape == expected.shape
    difference = np.abs(found.astype(int) - expected.astype(int))
    assert difference.max() <= 2 and difference.mean() < 0.6  # Pillow cuts off what OpenCV rounds


def test_boxes_are_widened_to_whole_pixels_and_clipped() -> None:
    np.testing.assert_array_equal(pixels(at_box([3.2, 4.9, 10.1, 20])), PICTURE[4:20, 3:11])
    np.testing.assert_array_equal(pixels(at_box([-5, -7, 10, 12])), PICTURE[:12, :10])
    np.testing.assert_array_equal(pixels(at_box([50, 30, 1e9, 1e9])), PICTURE[30:, 50:])
    np.testing.assert_array_equal(pixels(at_box([20, 10, 30, 20], margin=0.5)), PICTURE[5:25, 15:35])


@pytest.mark.parametrize(
    "box",
    [[5, 5, 5, 9], [9, 5, 5, 9], [60, 0, 70, 9], [-9, -9, 0, 0], [float("nan"), 0, 1, 1], [0, 0, float("inf"), 1]],
)
def test_empty_boxes_have_no_crop(box: list[float]) -> None:
    assert at_box(box) is None


@pytest.mark.parametrize(
    "polygon",
    [
        [[5, 5]] * 4,
        [[0, 0], [10, 10], [20, 20], [30, 30]],
        [[100, 100], [200, 100], [200, 200], [100, 200]],
        [[0, 0], [float("nan"), 0], [1, 1], [0, 1]],
        [[0, 0], [1, 0], [1, 1]],
        [],
    ],
)
def test_polygons_without_area_have_no_crop(polygon: list[Any]) -> None:
    assert at_polygon(polygon) is None


def test_turns_are_counter_clockwise() -> None:
    box = PICTURE[5:15, 10:40]
    for turn in (90, 180, 270):
        np.testing.assert_array_equal(pixels(at_box([10, 5, 40, 15], turn=turn)), np.rot90(box, turn // 90))


def test_a_tall_polygon_is_turned_to_the_left() -> None:
    tall = at_polygon([[10, 5], [20, 5], [20, 35], [10, 35]])
    assert tall is not None and tall.size == (30, 10)
    np.testing.assert_array_equal(pixels(tall), np.rot90(PICTURE[5:35, 10:20]))


def test_a_crop_of_a_crop_is_a_part_of_the_picture() -> None:
    outer = at_box([10, 10, 50, 30])
    assert outer is not None
    np.testing.assert_array_equal(pixels(crop_box(outer, [5, 5, 20, 10], 0.0, 0, "a crop")), PICTURE[15:20, 15:30])


def test_a_crop_obeys_the_largest_number_of_pixels() -> None:
    crop = at_box([0, 0, 20, 20])
    assert crop is not None and crop.open(max_pixels=400) is crop
    with pytest.raises(RequestTooLargeError, match="a crop has too many pixels: found 20x20, expected at most 399"):
        crop.open(max_pixels=399)


numbers = st.floats(-1e12, 1e12) | st.sampled_from([0.0, -1.0, 1e300, 2.0**31 - 1, float("nan"), float("inf")])


@given(st.lists(numbers, min_size=4, max_size=4), st.floats(0, 1))
def test_any_box_is_a_part_of_the_picture_or_nothing(box: list[float], margin: float) -> None:
    crop = at_box(box, margin)
    assert crop is None or 0 < crop.size[0] <= 60 and 0 < crop.size[1] <= 40


@given(st.lists(st.lists(numbers, min_size=2, max_size=2), min_size=4, max_size=4), st.floats(0, 1))
def test_any_polygon_is_at_most_as_long_as_the_picture_or_nothing(polygon: list[list[float]], margin: float) -> None:
    crop = at_polygon(polygon, margin)
    if crop is not None:
        assert min(crop.size) > 0 and max(crop.size) <= 72  # the diagonal
        assert pixels(crop).shape == (*crop.size[::-1], 3)
