"""The YOLO family's outputs, taken apart by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from app.errors import ConfigError
from app.images.placement import Placement
from app.tasks.images.detection import DetectionTask
from app.tasks.images.detection.boxes import to_corners
from tests.app.tasks.build import task_of

CANVAS = Placement.identity((100, 50))
PETS = ("cat", "dog")


def predict(output: Any, labels: tuple[str, ...] | None = PETS, **config: Any) -> list[dict[str, Any]]:
    task = task_of(DetectionTask, labels, **config)
    return task.predict({"out0": np.array([output], np.float32)}, [CANVAS], task.options({}))[0]


# Centre, size, objectness, cat, dog.
ROWS = [[20, 20, 10, 20, 0.8, 0.25, 1.0], [70, 25, 20, 10, 0.9, 1.0, 0.1], [50, 10, 4, 4, 0.4, 1.0, 1.0]]
FOUND = [
    {"label": "cat", "score": 0.9, "index": 0, "box": [60, 20, 80, 30]},
    {"label": "dog", "score": 0.8, "index": 1, "box": [15, 10, 25, 30]},
]


def test_yolov5_multiplies_objectness_with_the_class() -> None:
    assert predict(ROWS, decoder="yolov5") == FOUND


def test_yolov5_finds_an_anchor_once_unless_it_may_have_several_labels() -> None:
    rows = [[20, 20, 10, 20, 1.0, 0.75, 0.5]]
    assert [row["label"] for row in predict(rows, decoder="yolov5")] == ["cat"]
    assert [row["label"] for row in predict(rows, decoder="yolov5", multi_label=True)] == ["cat", "dog"]


def test_yolov5_in_parts_of_the_canvas() -> None:
    rows = [[0.5, 0.5, 0.5, 0.5, 1.0, 1.0, 0.0]]
    assert predict(rows, decoder="yolov5", normalized=True)[0]["box"] == [25, 12.5, 75, 37.5]


@pytest.mark.parametrize("anchors", [1, 2, 3, 6, 7, 40])
def test_yolov8_is_told_from_its_transpose_by_its_labels(anchors: int) -> None:
    rows = np.zeros((anchors, 6))
    rows[0] = [20, 20, 10, 20, 0.1, 0.8]
    expected = [{"label": "dog", "score": 0.8, "index": 1, "box": [15, 10, 25, 30]}]
    assert predict(rows.T, decoder="yolov8") == expected
    if anchors != 6:  # then there is no telling, and it is as YOLOv8 has it
        assert predict(rows, decoder="yolov8") == expected


def test_yolov8_without_labels_has_more_anchors_than_columns() -> None:
    rows = np.zeros((20, 6))
    rows[3] = [20, 20, 10, 20, 0.1, 0.8]
    for output in (rows, rows.T):
        assert [row["label"] for row in predict(output, None, decoder="yolov8")] == ["1"]


@pytest.mark.parametrize("transposed", [True, False])
def test_yolov8_says_how_many_labels_it_has(transposed: bool) -> None:
    rows = np.zeros((20, 9))
    with pytest.raises(ConfigError, match="labels: found 2, expected 5"):
        predict(rows.T if transposed else rows, decoder="yolov8")


@pytest.mark.parametrize(
    ("decoder", "shape", "message"),
    [
        ("yolov5", (3, 5), r"output 'out0': found shape \[1, 3, 5\], expected \(N, anchors, 5 \+ classes\)"),
        ("yolov5", (3,), r"output 'out0': found shape \[1, 3\], expected"),
        ("yolov8", (4, 20), r"output 'out0': found shape \[1, 4, 20\], expected \(N, 4 \+ classes, anchors\)"),
        ("yolov8", (0, 0), r"output 'out0': found shape \[1, 0, 0\], expected"),
        ("yolov8", (), r"output 'out0': found shape \[1\], expected"),
    ],
)
def test_outputs_of_another_shape_are_refused(decoder: str, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        predict(np.zeros(shape), None, decoder=decoder)


def slow(rows: np.ndarray, threshold: float, iou: float, limit: int) -> list[tuple[int, float, list[float]]]:
    """Reference: one box at a time; returns class, score and corners of the kept boxes."""
    candidates = []
    for row in rows.astype(np.float64):
        index = int(np.argmax(row[5:]))
        score = float(np.float32(row[4]) * np.float32(row[5 + index]))
        x0, y0 = max(row[0] - row[2] / 2, 0), max(row[1] - row[3] / 2, 0)
        x1, y1 = min(row[0] + row[2] / 2, 640), min(row[1] + row[3] / 2, 640)
        if score >= threshold:
            candidates.append((index, score, to_corners(row[:4], "cxcywh").tolist(), [x0, y0, x1, y1]))
    kept: list[Any] = []
    for candidate in sorted(candidates, key=lambda row: -row[1]):
        if all(candidate[0] != other[0] or _iou(candidate[2], other[2]) <= iou for other in kept):
            kept.append(candidate)
    return [(index, score, inside) for index, score, _, inside in kept[:limit]]


def _iou(a: list[float], b: list[float]) -> float:
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    shared = max(width, 0) * max(height, 0)
    return shared / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared)


@pytest.mark.parametrize(("threshold", "limit"), [(0.3, 1000), (0.02, 1000), (0.02, 40)])
def test_many_anchors_are_found_as_a_plain_loop_finds_them(threshold: float, limit: int) -> None:
    rng = np.random.default_rng(3)
    rows = rng.random((2520, 8)).astype(np.float32)
    rows[:, :2] *= 640
    rows[:, 2:4] = rows[:, 2:4] * 90 + 10
    rows[:, 4] **= 2
    config = {"decoder": "yolov5", "score_threshold": threshold, "iou_threshold": 0.2, "max_detections": limit}
    task = task_of(DetectionTask, **config)
    found = task.predict({"out0": rows[None]}, [Placement.identity((640, 640))], task.options({}))[0]
    expected = slow(rows, threshold, 0.2, limit)
    assert [row["index"] for row in found] == [index for index, _, _ in expected]
    np.testing.assert_allclose([row["score"] for row in found], [score for _, score, _ in expected], rtol=1e-6)
    np.testing.assert_allclose([row["box"] for row in found], [box for _, _, box in expected], atol=0.006)
