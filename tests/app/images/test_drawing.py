"""Tests that drawings stay within the picture at every size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from app.images.drawing import blend, draw_boxes, encode_png, pixels, to_text
from app.images.palette import generated, text_on

SIDES = st.integers(1, 60)
PARTS = st.tuples(*[st.floats(0, 1)] * 4)


def row(box: list[float], index: int = 0, label: str = "", score: float = 0.5) -> dict[str, Any]:
    return {"label": label, "score": score, "index": index, "box": box}


def drawn(size: tuple[int, int], *rows: dict[str, Any]) -> np.ndarray:
    return np.asarray(draw_boxes(Image.new("RGB", size), rows))


@given(SIDES, SIDES, PARTS)
def test_the_pixels_of_a_box_lie_in_the_picture(width: int, height: int, parts: tuple[float, ...]) -> None:
    x, y = sorted(part * width for part in parts[:2]), sorted(part * height for part in parts[2:])
    left, top, right, bottom = pixels([x[0], y[0], x[1], y[1]], (width, height))
    assert 0 <= left <= right < width and 0 <= top <= bottom < height
    assert abs(left - x[0]) <= 1 and abs(right + 1 - x[1]) <= 1.5


@pytest.mark.parametrize(
    ("box", "expected"),
    [([0, 0, 10, 8], (0, 0, 9, 7)), ([2, 3, 4, 5], (2, 3, 3, 4)), ([9.99, 7.99, 10, 8], (9, 7, 9, 7)),
     ([10, 8, 10, 8], (9, 7, 9, 7))],
)  # fmt: skip
def test_a_box_covers_the_pixels_between_its_sides(box: list[float], expected: tuple[int, ...]) -> None:
    assert pixels(box, (10, 8)) == expected


@given(SIDES, SIDES, PARTS, st.text(max_size=100))
def test_drawing_works_at_any_size_and_with_any_label(
    width: int, height: int, parts: tuple[float, ...], label: str
) -> None:
    x, y = sorted(part * width for part in parts[:2]), sorted(part * height for part in parts[2:])
    assert drawn((width, height), row([x[0], y[0], x[1], y[1]], label=label)).shape == (height, width, 3)


def test_a_polygon_replaces_its_box() -> None:
    corners = [[2, 1], [7, 1], [6, 6], [1, 6]]
    found = drawn((9, 9), {**row([1, 1, 7, 6], index=3, label="text"), "polygon": corners})
    expected = Image.new("RGB", (9, 9))
    ImageDraw.Draw(expected).polygon([tuple(corner) for corner in corners], outline=generated(3))
    np.testing.assert_array_equal(found, np.asarray(expected))


def test_a_mask_is_laid_over_the_whole_pixels_of_its_box() -> None:
    mask = Image.new("1", (2, 2))
    mask.putpixel((1, 0), 1)
    found = drawn((80, 80), {**row([30.5, 30.5, 69.5, 69.5]), "mask": to_text(encode_png(mask))})
    inside, outside = found[40, 60], found[60, 60]
    np.testing.assert_allclose(inside, np.array(generated(0)) / 2, atol=2)
    assert not outside.any()


def test_key_points_of_a_low_score_are_left_out() -> None:
    points = [[10, 10, 0.9], [20, 20, 0.1], [30, 30, None], [None, 5, 1], [500, 500, 1]]
    found = drawn((80, 80), {**row([1, 70, 5, 79]), "keypoints": points})
    assert found[10, 10].tolist() == list(generated(0))
    assert not found[20, 20].any() and not found[30, 30].any()


def test_a_box_is_an_outline_in_the_colour_of_its_class() -> None:
    found = drawn((8, 8), row([1, 2, 6, 7], index=3))
    expected = np.zeros((8, 8, 3), np.uint8)
    expected[2:7, 1:6] = generated(3)
    expected[3:6, 2:5] = 0
    np.testing.assert_array_equal(found, expected)


def test_lines_grow_with_the_picture() -> None:
    found = drawn((2000, 1000), row([500, 500, 1500, 900]))
    assert (found[700, 500:520, 0] > 0).sum() == 5


def test_the_best_lies_on_top() -> None:
    found = drawn((8, 8), row([0, 0, 8, 8], index=1), row([0, 0, 8, 8], index=2))
    assert tuple(found[0, 0]) == generated(1)


@pytest.mark.parametrize("box", [[0, 0, 5, 5], [990, 590, 1000, 600], [995, 0, 1000, 600], [0, 0, 1000, 600]])
def test_a_label_is_whole_wherever_its_box_is(box: list[float]) -> None:
    def ink(box: list[float]) -> int:
        found = np.asarray(draw_boxes(Image.new("RGB", (1000, 600), (1, 2, 3)), [row(box, label="cat")]))
        return int((found == text_on(generated(0))).all(axis=2).sum())

    assert ink(box) == ink([100, 300, 200, 450]) > 0


def test_text_that_would_not_be_readable_is_left_out() -> None:
    found = drawn((30, 30), row([5, 5, 25, 25], label="a very long label"))
    assert (found[:5] == 0).all() and (found[6:24, 6:24] == 0).all()


def test_a_mask_is_half_transparent_where_it_has_a_colour() -> None:
    mask = Image.fromarray(np.array([[0, 1, 255]], np.uint8))
    mask.putpalette([200, 100, 0, 0, 100, 200])
    mask.info["transparency"] = bytes([255, 255, *[0] * 254])
    found = np.asarray(blend(Image.new("RGB", (3, 1), (100, 100, 100)), mask)).astype(int)
    np.testing.assert_allclose(found[0], [[150, 100, 50], [50, 100, 150], [100, 100, 100]], atol=1)
