"""Outputs to boxes in the picture sent."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from app.errors import ConfigError, InvalidRequestError
from app.images.config import PreprocessConfig
from app.images.placement import Placement, place
from app.tasks.images.detection import DetectionTask
from tests.app.tasks.build import task_of

FLOATS = st.floats(width=32) | st.sampled_from([0.0, 0.5, 0.9, 1.0, 30.0, np.nan, np.inf, -np.inf])
CANVAS = Placement.identity((100, 50))


task = partial(task_of, DetectionTask, outputs=2)


def predict(
    made: DetectionTask, scores: Any, boxes: Any, placement: Placement = CANVAS, **parameters: Any
) -> list[dict[str, Any]]:
    outputs = {"out0": np.array([scores], np.float32), "out1": np.array([boxes], np.float32)}
    return made.predict(outputs, [placement], made.options(parameters))[0]


def test_a_normalised_box_is_in_pixels_of_the_picture() -> None:
    found = predict(task(("face",)), [[0.9]], [[0.1, 0.2, 0.5, 0.6]])
    assert found == [{"label": "face", "score": 0.9, "index": 0, "box": [10, 10, 50, 30]}]


def test_a_box_in_pixels_is_in_pixels_of_the_canvas() -> None:
    assert predict(task(normalized=False), [[0.9]], [[1, 2, 3, 4]])[0]["box"] == [1, 2, 3, 4]


@pytest.mark.parametrize("rule", ["stretch", "crop", "letterbox"])
def test_boxes_come_back_from_the_canvas_however_the_picture_was_fitted(rule: str) -> None:
    placed = place((400, 300), (100, 100), PreprocessConfig(resize=rule, crop_fraction=1.0))
    wanted = np.array([160.0, 120, 240, 180])
    on_canvas = (wanted.reshape(2, 2) * placed.resized / placed.picture - placed.origin).ravel() / 100
    np.testing.assert_allclose(predict(task(), [[0.9]], [on_canvas], placed)[0]["box"], wanted, atol=0.05)


def test_the_background_is_never_found() -> None:
    found = predict(task(("nothing", "cat"), background=0), [[0.9, 0.6]], [[0, 0, 1, 1]])
    assert [row["label"] for row in found] == ["cat"]


def test_scores_below_the_threshold_and_nan_are_dropped() -> None:
    boxes = [[0, 0, 0.2, 0.2], [0.4, 0.4, 0.6, 0.6], [0.7, 0.7, 1, 1]]
    assert [row["score"] for row in predict(task(), [[0.5], [0.49], [np.nan]], boxes)] == [0.5]


def test_overlapping_boxes_of_one_class_are_one_and_of_two_classes_two() -> None:
    boxes = [[0, 0, 0.5, 0.5], [0, 0, 0.5, 0.52]]
    assert len(predict(task(), [[0.9, 0], [0.8, 0]], boxes)) == 1
    assert [row["index"] for row in predict(task(), [[0.9, 0], [0, 0.95]], boxes)] == [1, 0]


def test_empty_and_infinite_boxes_are_dropped() -> None:
    boxes = [[0.5, 0.5, 0.5, 0.6], [0.6, 0.6, 0.5, 0.5], [2, 2, 3, 3], [np.nan, 0, 1, 1], [0, 0, np.inf, 1]]
    assert predict(task(), [[0.9]] * 5, boxes) == []


def test_boxes_are_cut_at_the_edges_of_the_picture() -> None:
    assert predict(task(), [[0.9]], [[-1, -1, 2, 2]])[0]["box"] == [0, 0, 100, 50]


def test_a_request_can_move_the_thresholds() -> None:
    boxes = [[0, 0, 0.5, 0.5], [0, 0, 0.5, 0.52]]
    scores = [[0.9], [0.3]]
    assert len(predict(task(), scores, boxes, score_threshold="0.2", iou_threshold=1)) == 2
    assert len(predict(task(), scores, boxes, score_threshold=0.2, iou_threshold=1, max_detections=1)) == 1


def test_a_threshold_of_nothing_still_ends() -> None:
    rng = np.random.default_rng(0)
    corners = rng.random((4000, 2))
    boxes = np.concatenate([corners, corners + 0.05], axis=1)
    assert len(predict(task(), rng.random((4000, 20)), boxes, score_threshold=0)) == 100


def test_an_anchor_is_its_best_class_or_every_class_that_passes() -> None:
    scores, boxes = [[0.6, 0.9, 0.7, 0.1]], [[0, 0, 1, 1]]
    assert [row["index"] for row in predict(task(), scores, boxes)] == [1, 2, 0]
    assert [row["index"] for row in predict(task(multi_label=False), scores, boxes)] == [1]
    assert [row["index"] for row in predict(task(multi_label=False, background=1), scores, boxes)] == [2]


def test_a_background_beyond_the_classes_is_no_class() -> None:
    assert len(predict(task(background=7), [[0.9]], [[0, 0, 1, 1]])) == 1


@given(
    arrays.arrays(np.float32, (5, 2), elements=FLOATS), arrays.arrays(np.float32, (5, 4), elements=FLOATS),
    st.sampled_from(["scores_boxes", "yolov5", "yolov8"]), st.sampled_from(["xyxy", "xywh", "cxcywh"]), st.booleans(),
)  # fmt: skip
def test_whatever_the_network_says_is_answered_with_boxes_in_the_picture(
    scores: np.ndarray, boxes: np.ndarray, decoder: str, box_format: str, flag: bool
) -> None:
    rows = np.concatenate([boxes, scores[:, :1], scores] if decoder == "yolov5" else [boxes, scores], axis=1)
    first = {"scores_boxes": scores, "yolov5": rows, "yolov8": rows.T}[decoder]
    made = task(("a", "b"), decoder=decoder, box_format=box_format, normalized=flag, multi_label=flag)
    found = made.predict({"out0": first[None], "out1": boxes[None]}, [CANVAS], made.options({"score_threshold": 0}))[0]
    json.loads(json.dumps(found, allow_nan=False))
    for x0, y0, x1, y1 in (row["box"] for row in found):
        assert 0 <= x0 <= x1 <= 100 and 0 <= y0 <= y1 <= 50


def test_each_item_of_a_batch_has_its_own_boxes() -> None:
    outputs = {"out0": np.float32([[[0.9]], [[0.1]]]), "out1": np.float32([[[0, 0, 1, 1]], [[0, 0, 1, 1]]])}
    made = task()
    assert [len(rows) for rows in made.predict(outputs, [CANVAS] * 2, made.options({}))] == [1, 0]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"scores": "out7"}, "detection.scores: found 'out7', expected one of 'out0', 'out1'"),
        ({"boxes": "x"}, "detection.boxes: found 'x'"),
        ({"decoder": "yolo"}, "detection.decoder: found 'yolo'.*, expected 'scores_boxes', 'yolov5'"),
        ({"decoder": "yolov5", "output": "out9"}, "detection.output: found 'out9', expected one of 'out0', 'out1'"),
    ],
)
def test_configs_that_do_not_fit_are_refused(config: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        task(**config)


@pytest.mark.parametrize(
    ("scores", "boxes"), [((1, 3), (1, 3, 4)), ((1, 3, 0), (1, 3, 4)), ((1, 3, 2), (1, 2, 4)), ((1, 3, 2), (1, 3, 5))]
)
def test_outputs_of_another_shape_are_refused(scores: tuple[int, ...], boxes: tuple[int, ...]) -> None:
    made = task()
    with pytest.raises(ConfigError, match=r"outputs 'out0' and 'out1': found shapes"):
        made.predict({"out0": np.zeros(scores), "out1": np.zeros(boxes)}, [CANVAS], made.options({}))


def test_labels_must_be_one_per_class() -> None:
    with pytest.raises(ConfigError, match="labels: found 1, expected 2"):
        predict(task(("face",)), [[0.9, 0.1]], [[0, 0, 1, 1]])


def test_parameters_the_task_has_not_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="unknown parameter 'top_k'"):
        task().options({"top_k": 3})
