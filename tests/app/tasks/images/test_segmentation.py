"""Maps to areas and masks, by hand on pictures of a few pixels."""

from __future__ import annotations

import base64
import io
import json
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from app.errors import ConfigError, InvalidRequestError
from app.images.palette import generated
from app.images.placement import Placement
from app.tasks.images.segmentation import SegmentationTask
from tests.app.tasks.build import task_of

PETS = ("background", "cat", "dog")
FLOATS = st.floats(width=32) | st.sampled_from([0.0, 0.5, 1.0, np.nan, np.inf, -np.inf])


task = partial(task_of, SegmentationTask)


def predict(made: SegmentationTask, item: Any, placement: Placement | None = None, **more: Any) -> dict[str, Any]:
    """item: scores (C, H, W) or indices (H, W)."""
    array = np.asarray(item) if isinstance(item, np.ndarray) else np.array(item, np.float32)
    size = (array.shape[-1], array.shape[-2])
    placed = placement if placement is not None else Placement.identity(size)
    found = made.predict({"out0": array[None]}, [placed], made.options(more))[0]
    assert isinstance(found, dict)
    return found


def one_hot(rows: list[list[int]], classes: int) -> np.ndarray:
    return (np.array(rows) == np.arange(classes).reshape(-1, 1, 1)).astype(np.float32)


def mask(found: dict[str, Any]) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(found["mask"])))


def areas(found: dict[str, Any]) -> dict[int, int]:
    return {row["index"]: row["area"] for row in found["classes"]}


ROWS = [[0, 1, 1, 2], [0, 1, 1, 0]]


def test_classes_come_with_area_and_fraction_largest_first() -> None:
    found = predict(task(PETS), one_hot(ROWS, 3))
    assert found["classes"] == [
        {"label": "cat", "index": 1, "area": 4, "fraction": 0.5, "color": "#00f000"},
        {"label": "dog", "index": 2, "area": 1, "fraction": 0.125, "color": "#5a1eff"},
    ]
    assert (found["width"], found["height"]) == (4, 2)


def test_the_masks_palette_index_is_the_class() -> None:
    image = mask(predict(task(PETS), one_hot(ROWS, 3)))
    assert (image.mode, image.size) == ("P", (4, 2))
    assert np.asarray(image).tolist() == ROWS


def test_the_mask_has_the_colours_of_the_classes_and_a_transparent_background() -> None:
    image = np.asarray(mask(predict(task(PETS), one_hot(ROWS, 3))).convert("RGBA"))
    assert image[0, 0, 3] == 0
    assert image[0, 1].tolist() == [*generated(1), 255]
    assert image[0, 3].tolist() == [*generated(2), 255]


def test_colours_can_be_chosen_and_repeat() -> None:
    found = predict(task(None, colors=("#ff0000", "#0000ff")), one_hot(ROWS, 3))
    assert {row["index"]: row["color"] for row in found["classes"]} == {1: "#0000ff", 0: "#ff0000", 2: "#ff0000"}


@pytest.mark.parametrize(
    ("labels", "background", "listed"),
    [
        (PETS, "auto", {1, 2}),
        (("__background__", "cat", "dog"), "auto", {1, 2}),
        (("sky", "cat", "dog"), "auto", {0, 1, 2}),
        (None, "auto", {0, 1, 2}),
        (PETS, "none", {0, 1, 2}),
        (None, 1, {0, 2}),
        (None, 9, {0, 1, 2}),
    ],
)
def test_the_background_is_not_listed(labels: tuple[str, ...] | None, background: Any, listed: set[int]) -> None:
    assert set(areas(predict(task(labels, background=background), one_hot(ROWS, 3)))) == listed


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.float32])
def test_class_indices_are_taken_as_they_are(dtype: type) -> None:
    found = predict(task(PETS), np.array(ROWS, dtype))
    assert areas(found) == {1: 4, 2: 1} and np.asarray(mask(found)).tolist() == ROWS


def test_indices_may_come_with_a_channel() -> None:
    assert areas(predict(task(PETS), np.array([ROWS]))) == {1: 4, 2: 1}


def test_indices_beyond_the_labels_are_no_class() -> None:
    found = predict(task(("sky", "sea")), np.array([[0, 1, 255, -1]]))
    assert areas(found) == {0: 1, 1: 1}
    image = mask(found)
    assert np.asarray(image).tolist() == [[0, 1, 255, 255]]
    assert np.asarray(image.convert("RGBA"))[0, :, 3].tolist() == [255, 255, 0, 0]


def test_more_classes_than_a_palette_holds_make_a_mask_of_colours() -> None:
    found = predict(task(), np.array([[0, 300, -1]]))
    assert [row["label"] for row in found["classes"]] == ["0", "300"]
    image = np.asarray(mask(found))
    assert image[0].tolist() == [[*generated(0), 255], [*generated(300), 255], [0, 0, 0, 0]]


@pytest.mark.parametrize("labels", [None, ("cat",), ("nothing", "cat")])
def test_one_channel_is_a_class_and_its_background(labels: tuple[str, ...] | None) -> None:
    found = predict(task(labels), [[[0.9, 0.1], [0.5, 0.49]]])
    assert areas(found) == {1: 2}
    assert found["classes"][0]["label"] == ("1" if labels is None else "cat")
    assert np.asarray(mask(found)).tolist() == [[1, 0], [1, 0]]


@pytest.mark.parametrize(
    ("config", "values", "expected"),
    [
        ({}, [0.4, 0.6], [0, 1]),
        ({}, [-0.1, 0.2], [0, 1]),  # not all in 0..1, so they are logits
        ({"activation": "none"}, [-0.1, 0.2], [0, 0]),
        ({"activation": "sigmoid"}, [0.4, 0.6], [1, 1]),
        ({"activation": "sigmoid", "threshold": 0.62}, [0.4, 0.6], [0, 1]),
        ({"threshold": 0.2}, [0.1, 0.3], [0, 1]),
        ({"activation": "sigmoid", "threshold": 0}, [-50, np.nan], [1, 0]),
        ({"activation": "sigmoid", "threshold": 1}, [30, np.inf], [0, 0]),
    ],
)
def test_one_channel_is_compared_with_the_threshold(
    config: dict[str, Any], values: list[float], expected: list[int]
) -> None:
    assert np.asarray(mask(predict(task(**config), [[values]])))[0].tolist() == expected


def test_sigmoid_leaves_pixels_where_no_class_is_likely() -> None:
    scores = [[[2, -1, -3]], [[1, -2, 4]]]
    assert np.asarray(mask(predict(task(activation="sigmoid"), scores))).tolist() == [[0, 255, 1]]
    assert np.asarray(mask(predict(task(activation="sigmoid", background=1), scores))).tolist() == [[0, 1, 1]]
    assert np.asarray(mask(predict(task(), scores))).tolist() == [[0, 0, 1]]


@pytest.mark.parametrize(
    ("activation", "scores", "expected"),
    [
        ("softmax", [[[0, 3]], [[1, 0]]], [255, 0]),  # 0.73 of e / (1 + e), and 0.95
        ("auto", [[[0, 3]], [[1, 0]]], [255, 0]),
        ("auto", [[[0.25, 0.85]], [[0.75, 0.15]]], [255, 0]),
        ("none", [[[0.7, 0.9]], [[0.7, 0.7]]], [255, 0]),
    ],
)
def test_a_threshold_asks_for_certainty(activation: str, scores: Any, expected: list[int]) -> None:
    found = predict(task(activation=activation), scores, threshold=0.8)
    assert np.asarray(mask(found))[0].tolist() == expected


def test_small_classes_are_left_out_of_list_and_mask() -> None:
    found = predict(task(PETS), one_hot(ROWS, 3), min_area="2")
    assert areas(found) == {1: 4}
    assert np.asarray(mask(found)).tolist() == [[0, 1, 1, 0], [0, 1, 1, 0]]


def test_areas_are_in_pixels_of_the_picture_sent() -> None:
    placement = Placement(picture=(40, 10), resized=(4, 1), canvas=(4, 4), origin=(0, -2))
    rows = [[0] * 4, [0] * 4, [1, 1, 2, 2], [0] * 4]
    found = predict(task(PETS), np.array(rows), placement)
    assert areas(found) == {1: 200, 2: 200} and mask(found).size == (40, 10)


def test_each_item_of_a_batch_has_its_own_mask() -> None:
    made = task(PETS)
    found = made.predict({"out0": np.array([[[1]], [[2]]])}, [Placement.identity((1, 1))] * 2, made.options({}))
    assert [areas(dict(item)) for item in found] == [{1: 1}, {2: 1}]


@given(
    arrays.arrays(np.float32, st.tuples(st.integers(1, 3), st.just(3), st.just(4)), elements=FLOATS),
    st.sampled_from(["auto", "softmax", "sigmoid", "none"]), st.none() | st.floats(0, 1),
)  # fmt: skip
def test_whatever_the_network_says_list_and_mask_agree(
    scores: np.ndarray, activation: str, threshold: float | None
) -> None:
    made = task(activation="auto" if len(scores) == 1 else activation, threshold=threshold, background="none")
    placement = Placement(picture=(5, 7), resized=(3, 3), canvas=(4, 3), origin=(0, 0))
    found = predict(made, scores, placement)
    json.loads(json.dumps(found, allow_nan=False))
    indices, counts = np.unique(np.asarray(mask(found)), return_counts=True)
    assert areas(found) == {int(i): int(n) for i, n in zip(indices, counts, strict=True) if i != 255}


@pytest.mark.parametrize("shape", [(1, 3), (1, 3, 0, 4), (1, 0, 3, 4), (1, 3, 4, 0), (1, 0, 4), (1, 1, 1, 2, 2)])
def test_outputs_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    made = task()
    with pytest.raises(ConfigError, match=r"output 'out0': found .* expected scores \(N, classes, H, W\) or class"):
        made.predict({"out0": np.zeros(shape)}, [Placement.identity((2, 2))], made.options({}))


@pytest.mark.parametrize(
    ("labels", "config", "item", "message"),
    [
        (("a", "b"), {}, np.zeros((3, 2, 2)), "labels: found 2, expected 3"),
        (("a", "b", "c"), {}, np.zeros((1, 2, 2)), "labels: found 3, expected 2"),
        (None, {"activation": "softmax"}, np.zeros((1, 2, 2)), "segmentation.activation: found 'softmax'"),
        (None, {}, np.zeros((1, 2, 2), np.complex64), r"output 'out0': found \[1, 1, 2, 2\] complex64"),
    ],
)
def test_configs_that_do_not_fit_are_refused(labels: Any, config: Any, item: np.ndarray, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        predict(task(labels, **config), item)


def test_an_output_the_model_has_not_is_refused() -> None:
    with pytest.raises(ConfigError, match="segmentation.output: found 'out9', expected one of 'out0'"):
        task(output="out9")


def test_outputs_of_another_batch_are_refused() -> None:
    made = task()
    with pytest.raises(ConfigError, match="the outputs: found 1 items, expected 2"):
        made.predict({"out0": np.zeros((1, 2, 2))}, [Placement.identity((2, 2))] * 2, made.options({}))


@pytest.mark.parametrize("parameters", [{"threshold": 2}, {"min_area": -1}, {"top_k": 1}])
def test_parameters_that_make_no_sense_are_refused(parameters: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError):
        task().options(parameters)
