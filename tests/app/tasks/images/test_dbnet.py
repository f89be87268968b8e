"""Text regions of probability maps, against RapidOCR's DBPostProcess (tests/data/decoders/record.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.errors import ConfigError, RequestTooLargeError
from app.images.placement import Placement
from app.memory.reservation import MemoryBudget
from app.tasks.images.detection import DetectionTask
from app.tasks.images.detection.config import DetectionConfig
from tests.app.tasks.build import task_of

RECORD = Path(__file__).parents[3] / "data" / "decoders" / "dbnet.npz"


def find(values: np.ndarray, placement: Placement | None = None, **config: Any) -> list[dict[str, Any]]:
    placement = placement or Placement.identity((values.shape[1], values.shape[0]))
    task = task_of(DetectionTask, decoder="dbnet", **config)
    return task.predict({"out0": values[None, None]}, [placement], task.options({}))[0]


@pytest.mark.parametrize("number", range(8))
def test_boxes_their_order_and_scores_are_those_of_rapidocr(number: int) -> None:
    with np.load(RECORD) as record:
        values = record[f"map{number}"].astype(np.float32) / 255
        boxes, scores, picture = (record[f"{key}{number}"] for key in ("boxes", "scores", "picture"))
    canvas = (values.shape[1], values.shape[0])
    placement = Placement(picture=tuple(picture.tolist()), resized=canvas, canvas=canvas)
    found = find(values, placement, dilation=number % 2 == 0)
    assert [row["polygon"] for row in found] == boxes.tolist()
    np.testing.assert_allclose([row["score"] for row in found], scores, atol=1e-6)
    assert [row["box"] for row in found] == [[*box.min(axis=0), *box.max(axis=0)] for box in boxes]


def bar(left: int, top: int, right: int, bottom: int, size: tuple[int, int] = (64, 96)) -> np.ndarray:
    values = np.zeros(size, np.float32)
    values[top:bottom, left:right] = 0.9
    return values


def test_boxes_reach_the_edges_of_the_picture_at_most() -> None:
    placement = Placement(picture=(192, 128), resized=(96, 64), canvas=(96, 64))
    found = find(bar(0, 50, 96, 64), placement)
    assert [row["box"] for row in found] == [[0, 82, 191, 127]]


def test_a_map_of_lower_resolution_spans_the_canvas() -> None:
    placement = Placement(picture=(384, 256), resized=(384, 256), canvas=(384, 256))
    assert find(bar(20, 20, 60, 30), placement)[0]["box"] == [56, 56, 264, 144]


def test_texts_are_read_line_by_line() -> None:
    values = np.maximum.reduce([bar(50, 12, 80, 20), bar(10, 10, 40, 18), bar(30, 40, 60, 48)])
    assert [row["polygon"][0] for row in find(values)] == [[5, 5], [45, 7], [25, 35]]


def test_the_best_texts_are_kept() -> None:
    values = np.maximum.reduce([bar(10, 10, 40, 18), bar(50, 12, 80, 20) * 0.8, bar(30, 40, 60, 48)])
    assert [row["polygon"][0] for row in find(values, max_detections=2)] == [[5, 5], [25, 35]]


def test_a_hole_is_outlined_too() -> None:
    values = bar(10, 10, 80, 50)
    values[20:30, 30:60] = 0
    assert len(find(values, score_threshold=0)) == 2 and len(find(values)) == 1


@pytest.mark.parametrize(
    "values",
    [
        np.zeros((64, 96), np.float32),
        np.full((64, 96), np.nan, np.float32),
        np.zeros((1, 1), np.float32),
        bar(40, 10, 41, 50),  # one pixel wide
        np.eye(64, dtype=np.float32),  # a diagonal
    ],
)
def test_maps_without_text_have_no_boxes(values: np.ndarray) -> None:
    assert find(values) == []


def test_a_map_of_ones_is_one_box() -> None:
    assert [row["box"] for row in find(np.ones((64, 96), np.float32))] == [[0, 0, 95, 63]]
    assert [row["box"] for row in find(np.full((64, 96), np.inf, np.float32))] == []


@pytest.mark.parametrize(
    "values", [np.indices((600, 600)).sum(axis=0) % 2, np.random.default_rng(0).random((600, 600))]
)
def test_noise_is_bounded(values: np.ndarray) -> None:
    assert len(find(values.astype(np.float32), score_threshold=0)) <= 1000


def test_noise_that_needs_too_much_memory_is_refused() -> None:
    with MemoryBudget(1 << 20).answering(), pytest.raises(RequestTooLargeError):
        find((np.indices((400, 400)).sum(axis=0) % 2).astype(np.float32), dilation=False)


def test_not_a_number_is_no_text() -> None:
    values = bar(10, 10, 40, 18)
    values[40:60, 40:60] = np.nan
    assert [row["box"] for row in find(values)] == [[5, 5, 45, 23]]


@pytest.mark.parametrize("shape", [(1, 2, 8, 8), (1, 8, 8), (1, 1, 0, 8)])
def test_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=r"expected probabilities \(N, 1, H, W\)"):
        task_of(DetectionTask, decoder="dbnet").predict(
            {"out0": np.zeros(shape, np.float32)},
            [Placement.identity((8, 8))],
            DetectionConfig(decoder="dbnet", output="out0"),
        )
