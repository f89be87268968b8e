"""Tests of the placement of a picture on the network's canvas, and of its inverse."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.images.config import PreprocessConfig
from app.images.placement import Placement, place

SIDES = st.integers(1, 4000)
SIZES = st.tuples(SIDES, SIDES)
RULES = st.sampled_from(["stretch", "crop", "letterbox"])


@given(SIZES, SIZES, RULES)
def test_the_canvas_is_what_was_asked_for(picture: tuple[int, int], canvas: tuple[int, int], rule: str) -> None:
    placed = place(picture, canvas, PreprocessConfig(resize=rule))
    assert placed.canvas == canvas and placed.picture == picture
    assert min(placed.resized) >= 1


@given(SIZES, SIZES)
def test_a_crop_covers_the_canvas(picture: tuple[int, int], canvas: tuple[int, int]) -> None:
    placed = place(picture, canvas, PreprocessConfig(resize="crop"))
    ends = np.add(placed.origin, canvas)
    assert min(placed.origin) >= 0 and (ends <= placed.resized).all()


@given(SIZES, SIZES)
def test_a_letterbox_shows_the_whole_picture(picture: tuple[int, int], canvas: tuple[int, int]) -> None:
    placed = place(picture, canvas, PreprocessConfig(resize="letterbox"))
    assert max(placed.origin) <= 0
    assert (np.subtract(placed.resized, placed.origin) <= canvas).all()


@given(SIZES, SIZES, RULES, st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=2))
def test_a_box_of_the_picture_comes_back_from_the_canvas(
    picture: tuple[int, int], canvas: tuple[int, int], rule: str, corners: list[tuple[float, float]]
) -> None:
    placed = place(picture, canvas, PreprocessConfig(resize=rule))
    box = np.array(corners) * picture
    on_canvas = box * placed.resized / picture - placed.origin
    np.testing.assert_allclose(placed.to_picture(on_canvas.reshape(1, 4)), box.reshape(1, 4), atol=1e-6 * max(picture))


def test_boxes_are_cut_at_the_edges_of_the_picture() -> None:
    box = Placement.identity((10, 20)).to_picture(np.array([[-5.0, 3, 15, 25]]))
    assert box.tolist() == [[0, 3, 10, 20]]


# torchvision.transforms.v2: Resize(256) and CenterCrop(224) of a picture of that size.
@pytest.mark.parametrize(
    ("picture", "resized", "origin"),
    [((640, 480), (341, 256), (58, 16)), ((480, 640), (256, 341), (16, 58)), ((500, 333), (384, 256), (80, 16)),
     ((224, 224), (256, 256), (16, 16))],
)  # fmt: skip
def test_a_crop_is_torchvisions(picture: tuple[int, int], resized: tuple[int, int], origin: tuple[int, int]) -> None:
    placed = place(picture, (224, 224), PreprocessConfig(resize="crop", crop_fraction=0.875))
    assert (placed.resized, placed.origin) == (resized, origin)


def test_a_letterbox_puts_the_odd_pixel_to_the_right_and_below() -> None:
    placed = place((100, 50), (64, 64), PreprocessConfig(resize="letterbox"))
    assert (placed.resized, placed.origin) == ((64, 32), (0, -16))
    assert place((64, 63), (64, 64), PreprocessConfig(resize="letterbox")).origin == (0, 0)
