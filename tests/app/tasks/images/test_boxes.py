"""Box arithmetic against a plain loop over pixels and boxes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.tasks.images.detection.boxes import overlap, suppress, to_corners

CORNER = st.tuples(*[st.integers(0, 6)] * 4)
BOXES = st.lists(CORNER, min_size=1, max_size=8)
BLOCK = "app.tasks.images.detection.boxes._BLOCK"


def sorted_corners(rows: list[tuple[int, ...]]) -> np.ndarray:
    boxes = np.array(rows, np.float64)
    return np.concatenate([np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])], axis=1)


def cells(box: np.ndarray) -> set[tuple[int, int]]:
    x0, y0, x1, y1 = box.astype(int)
    return {(x, y) for x in range(x0, x1) for y in range(y0, y1)}


def slow_iou(a: np.ndarray, b: np.ndarray) -> float:
    union = cells(a) | cells(b)
    return len(cells(a) & cells(b)) / len(union) if union else 0.0


@given(BOXES, BOXES)
def test_overlap_is_counted_in_unit_cells(first: list[tuple[int, ...]], second: list[tuple[int, ...]]) -> None:
    one, many = sorted_corners(first)[0], sorted_corners(second)
    np.testing.assert_allclose(overlap(one, many), [slow_iou(one, other) for other in many])


@given(BOXES, st.data(), st.sampled_from([0.0, 0.3, 0.5, 1.0]), st.integers(1, 8))
def test_suppression_keeps_what_a_plain_loop_keeps(
    rows: list[tuple[int, ...]], data: st.DataObject, iou: float, limit: int
) -> None:
    boxes, count = sorted_corners(rows), len(rows)
    scores = np.array(data.draw(st.lists(st.sampled_from([0.1, 0.5, 0.9]), min_size=count, max_size=count)))
    classes = np.array(data.draw(st.lists(st.integers(0, 1), min_size=count, max_size=count)))
    kept: list[int] = []
    for index in sorted(range(count), key=lambda i: -scores[i]):
        rivals = [other for other in kept if classes[other] == classes[index]]
        if all(slow_iou(boxes[other], boxes[index]) <= iou for other in rivals):
            kept.append(index)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BLOCK, data.draw(st.sampled_from([1, 2, 3, 512])))
        assert suppress(boxes, scores, classes, iou, limit).tolist() == kept[:limit]


def test_nothing_is_left_of_nothing() -> None:
    empty = np.empty((0, 4))
    assert suppress(empty, np.empty(0), np.empty(0, np.intp), 0.5, 10).tolist() == []


@pytest.mark.parametrize(
    ("box_format", "row"), [("xyxy", [1, 2, 5, 8]), ("xywh", [1, 2, 4, 6]), ("cxcywh", [3, 5, 4, 6])]
)
def test_every_format_becomes_corners(box_format: str, row: list[float]) -> None:
    assert to_corners(np.array([[row]], np.float64), box_format).tolist() == [[[1, 2, 5, 8]]]
