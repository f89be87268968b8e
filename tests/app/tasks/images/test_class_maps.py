"""Maps of a network brought to the picture sent; plain loops over pixels and exact fractions are the oracle."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from app.images.config import PreprocessConfig
from app.images.placement import Placement, place
from app.tasks.images.segmentation import NOTHING, areas, classes_of_indices, classes_of_scores

SIDES = st.integers(1, 40)
SIZES = st.tuples(SIDES, SIDES)
RULES = st.sampled_from(["stretch", "crop", "letterbox"])


def exact_place(placement: Placement, axis: int, pixel: int) -> Fraction:
    """Return the position of a pixel's centre on the canvas."""
    scale = Fraction(placement.resized[axis], placement.picture[axis])
    return (pixel + Fraction(1, 2)) * scale - placement.origin[axis]


def expected(indices: np.ndarray, placement: Placement) -> np.ndarray:
    """The index each pixel's middle lies on; None where it lies on the line between two, or at the canvas's edge."""
    found = np.full(placement.picture[::-1], NOTHING, object)
    for y in range(placement.picture[1]):
        for x in range(placement.picture[0]):
            places = [exact_place(placement, axis, pixel) for axis, pixel in ((0, x), (1, y))]
            sizes = zip(places, indices.shape[::-1], placement.canvas, strict=True)
            on_map = [place * size / canvas for place, size, canvas in sizes]
            if any(value == int(value) for value in on_map):
                found[y, x] = None
            elif all(0 < place < side for place, side in zip(places, placement.canvas, strict=True)):
                found[y, x] = indices[int(on_map[1]), int(on_map[0])]
    return found


@given(SIZES, SIZES, SIZES, RULES)
def test_every_pixel_has_the_index_its_middle_lies_on(
    picture: tuple[int, int], canvas: tuple[int, int], size: tuple[int, int], rule: str
) -> None:
    placement = place(picture, canvas, PreprocessConfig(resize=rule))
    indices = np.arange(size[0] * size[1]).reshape(size[::-1])
    found, wanted = classes_of_indices(indices, placement, indices.size), expected(indices, placement)
    is_told = wanted != None  # noqa: E711 (of each element)
    np.testing.assert_array_equal(found[is_told], wanted[is_told].astype(int))


@given(st.integers(1, 12), st.integers(1, 12), st.data(), RULES)
def test_a_map_of_the_pictures_own_pixels_comes_back_as_it_was(
    width: int, height: int, data: st.DataObject, rule: str
) -> None:
    if rule == "stretch":
        canvas = (width, height)
    elif rule == "crop":
        canvas = (min(width, height), min(width, height))
    else:
        canvas = (max(width, height) + (0 if width != height else 1), max(width, height))
    placement = place((width, height), canvas, PreprocessConfig(resize=rule, crop_fraction=1.0))
    truth = data.draw(arrays.arrays(np.int64, (height, width), elements=st.integers(0, 3)))
    on_canvas = np.full(canvas[::-1], 3)
    (left, top), picture = placement.origin, np.full((height, width), NOTHING)
    for y in range(canvas[1]):
        for x in range(canvas[0]):
            if 0 <= x + left < width and 0 <= y + top < height:
                on_canvas[y, x] = picture[y + top, x + left] = truth[y + top, x + left]
    scores = (on_canvas == np.arange(4).reshape(4, 1, 1)).astype(np.float32)
    np.testing.assert_array_equal(classes_of_indices(on_canvas, placement, 4), picture)
    np.testing.assert_array_equal(classes_of_scores(scores, -math.inf, placement), picture)


def bilinear(layer: np.ndarray, y: float, x: float) -> float:
    """Interpolate between four values by the formula; edges are extended."""
    height, width = layer.shape
    y0, x0 = math.floor(y - 0.5), math.floor(x - 0.5)
    total = 0.0
    for row, column in ((y0, x0), (y0, x0 + 1), (y0 + 1, x0), (y0 + 1, x0 + 1)):
        weight = (1 - abs(y - 0.5 - row)) * (1 - abs(x - 0.5 - column))
        total += weight * layer[min(max(row, 0), height - 1), min(max(column, 0), width - 1)]
    return total


@pytest.mark.parametrize(
    ("picture", "canvas", "rule"),
    [((30, 20), (10, 10), "stretch"), ((13, 29), (8, 8), "letterbox"), ((29, 13), (8, 8), "letterbox")],
)
def test_scores_are_interpolated_before_they_are_compared(
    picture: tuple[int, int], canvas: tuple[int, int], rule: str
) -> None:
    placement = place(picture, canvas, PreprocessConfig(resize=rule))
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(3, 5, 4)).astype(np.float32)
    scores[1, ::2] += 1
    found = classes_of_scores(scores, 0.1, placement)
    for y in range(picture[1]):
        for x in range(picture[0]):
            on_map = [
                float(exact_place(placement, axis, pixel)) * scores.shape[2 - axis] / canvas[axis]
                for axis, pixel in ((0, x), (1, y))
            ]
            values = [bilinear(layer, on_map[1], on_map[0]) for layer in scores]
            best, second = sorted([*values, 0.1], reverse=True)[:2]
            if best - second > 1e-4:
                assert found[y, x] == (values.index(best) if best > 0.1 else NOTHING)


def test_what_the_canvas_does_not_show_is_nothing() -> None:
    placement = place((8, 4), (4, 4), PreprocessConfig(resize="crop", crop_fraction=1.0))
    found = classes_of_scores(np.ones((1, 4, 4)), 0, placement)
    assert found.tolist() == [[-1, -1, 0, 0, 0, 0, -1, -1]] * 4


def test_a_huge_picture_is_done_at_a_lower_resolution(monkeypatch: pytest.MonkeyPatch) -> None:
    truth = np.arange(16).reshape(4, 4) % 3
    scores = (truth == np.arange(3).reshape(3, 1, 1)).astype(np.float32)
    monkeypatch.setattr("app.tasks.images.segmentation._MAX_WORK", 16 * 3)
    found = classes_of_scores(scores, 0.1, Placement(picture=(40, 40), resized=(4, 4), canvas=(4, 4)))
    np.testing.assert_array_equal(found, np.kron(truth, np.ones((10, 10))))


@given(arrays.arrays(np.float64, (3, 4, 4), elements=st.floats() | st.sampled_from([np.nan, np.inf, -np.inf, 1e300])))
def test_scores_of_any_kind_give_classes(scores: np.ndarray) -> None:
    placement = place((9, 7), (4, 4), PreprocessConfig(resize="letterbox"))
    found = classes_of_scores(scores, -math.inf, placement)
    assert found.shape == (7, 9) and set(np.unique(found)) <= {-1, 0, 1, 2}


def test_nan_is_never_a_class() -> None:
    scores = np.float32([[[np.nan, 1], [np.nan, np.nan]], [[np.nan, np.nan], [-5, np.nan]]])
    assert classes_of_scores(scores, -math.inf, Placement.identity((2, 2))).tolist() == [[-1, 0], [1, -1]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_indices_out_of_range_are_nothing(dtype: type) -> None:
    indices = np.array([[0, 2, 3], [-1, np.nan, np.inf]], dtype)
    assert classes_of_indices(indices, Placement.identity((3, 2)), 3).tolist() == [[0, 2, -1], [-1, -1, -1]]


def test_areas_count_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    class_map = np.int16([[0, 2, 2], [-1, -1, 2]])
    assert areas(class_map, 4).tolist() == [1, 0, 3, 0]
    monkeypatch.setattr("app.tasks.images.segmentation._CHUNK", 2)
    assert areas(class_map, 4).tolist() == [1, 0, 3, 0]
