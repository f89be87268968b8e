"""Decoders against their original post-processing (tests/data/decoders/record.py), with no, few and many objects."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from app.errors import ConfigError
from app.images.placement import Placement
from app.tasks.images.detection import DetectionTask
from tests.app.tasks.build import task_of

DATA = Path(__file__).parents[3] / "data" / "decoders"
CANVAS, PICTURE = (160, 96), (320, 160)
LETTERBOX = Placement(picture=PICTURE, resized=(160, 80), canvas=CANVAS, origin=(0, -8))
STRETCHED = Placement(picture=PICTURE, resized=CANVAS, canvas=CANVAS)
UNMOVED = Placement.identity(CANVAS)
LABELS = tuple("abcde")
Record = dict[str, np.ndarray]
Outputs = dict[str, np.ndarray]


def recorded(name: str, number: int) -> Record:
    with np.load(DATA / f"{name}.npz") as record:
        return {key[:-1]: record[key] for key in record.files if key.endswith(str(number))}


def find(outputs: Outputs, placement: Placement, **config: Any) -> list[dict[str, Any]]:
    task = task_of(DetectionTask, LABELS, outputs=len(outputs), max_detections=1000, **config)
    return task.predict(outputs, [placement], task.options({}))[0]


CASES: dict[str, tuple[Callable[[Record], Outputs], Placement, dict[str, Any]]] = {
    "yolox": (
        lambda record: {"out0": record["rows"][None]},
        UNMOVED,
        {"score_threshold": 0.25, "iou_threshold": 0.45},
    ),
    "centernet": (
        lambda record: {"out0": record["heat"], "out1": record["sizes"], "out2": record["offsets"]},
        UNMOVED,
        {"score_threshold": 0.3, "offsets": "out2"},
    ),
    "detr": (lambda record: {"out0": record["logits"], "out1": record["raw"]}, STRETCHED, {"score_threshold": 0.3}),
    "rt_detr": (lambda record: {"out0": record["logits"], "out1": record["raw"]}, STRETCHED, {"score_threshold": 0.3}),
}


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("name", CASES)
def test_boxes_and_their_order_are_those_of_the_original(name: str, number: int) -> None:
    outputs_of, placement, config = CASES[name]
    record = recorded(name, number)
    found = find(outputs_of(record), placement, decoder=name, **config)
    order = np.argsort(-record["scores"], kind="stable")  # DETR's has the order of its queries
    check_boxes(found, record, order, placement.picture)


def check_boxes(found: list[dict[str, Any]], record: Record, order: np.ndarray, picture: tuple[int, int]) -> None:
    expected = np.clip(record["boxes"][order], 0, np.tile(picture, 2))
    assert [row["index"] for row in found] == record["classes"][order].astype(int).tolist()
    np.testing.assert_allclose([row["score"] for row in found], record["scores"][order], rtol=1e-5)
    np.testing.assert_allclose(np.reshape([row["box"] for row in found], (-1, 4)), expected, atol=6e-3)


def without_points(name: str, record: Record) -> Outputs:
    """Return the outputs of a network for segmentation."""
    rows = {"yolov5": record["rows"][None], "yolov10": record["rows"][None, :, :-9]}
    found = rows[name] if name in rows else record["rows"][:, :-9].T[None]
    return {"out0": found, "out1": record["prototypes"][None]}


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("name", ["yolov5", "yolov8", "yolov10"])
def test_boxes_and_masks_are_those_of_the_original(name: str, number: int) -> None:
    record = recorded(name, number)
    config = {"prototypes": "out1", "score_threshold": 0.25, "iou_threshold": 0.45}
    found = find(without_points(name, record), LETTERBOX, decoder=name, **config)
    check_boxes(found, record, np.arange(len(record["scores"])), PICTURE)
    count = len(found) * PICTURE[0] * PICTURE[1]
    masks = np.unpackbits(record["masks"], count=count).reshape(len(found), *PICTURE[::-1]) if count else []
    for row, expected in zip(found, masks, strict=True):
        whole = np.zeros(PICTURE[::-1], np.uint8)
        left, top = int(row["box"][0]), int(row["box"][1])
        right, bottom = (int(np.ceil(side)) for side in row["box"][2:])
        # A box of which a thousandth of a pixel lies in a further row is answered without it.
        expected[:, right:] = expected[bottom:] = 0
        part = np.asarray(Image.open(io.BytesIO(base64.b64decode(row["mask"]))))
        whole[top : top + len(part), left : left + part.shape[1]] = part
        assert (whole != expected).sum() <= 1  # where a logit is zero but for rounding


@pytest.mark.parametrize("number", range(3))
def test_rotated_boxes_are_those_of_ultralytics(number: int) -> None:
    record = recorded("obb", number)
    config = {"decoder": "yolov8", "rotated": True, "score_threshold": 0.25, "iou_threshold": 0.45}
    found = find({"out0": record["rows"].T[None]}, LETTERBOX, **config)
    order = np.argsort(-record["scores"], kind="stable")
    # Ultralytics also returns boxes that lie outside the picture.
    expected = record["polygons"][order].astype(np.float64)
    low, high = np.clip(expected.min(axis=1), 0, PICTURE), np.clip(expected.max(axis=1), 0, PICTURE)
    is_inside = (high > low).all(axis=1)
    assert [row["index"] for row in found] == record["classes"][order][is_inside].astype(int).tolist()
    np.testing.assert_allclose([row["score"] for row in found], record["scores"][order][is_inside], rtol=1e-5)
    corners = np.reshape([row["polygon"] for row in found], (-1, 4, 2))
    # They begin with the last corner, and go the other way round.
    np.testing.assert_allclose(corners, expected[is_inside][:, [2, 1, 0, 3]], atol=0.02)
    boxes = np.concatenate([low, high], axis=1)[is_inside]
    np.testing.assert_allclose(np.reshape([row["box"] for row in found], (-1, 4)), boxes, atol=0.02)


def test_rotated_boxes_of_an_end_to_end_network_are_taken_as_they_are() -> None:
    row = [[50.0, 40.0, 20.0, 10.0, 0.9, 2.0, np.pi / 2], [50.0, 40.0, 20.0, 10.0, 0.8, -1.0, 0.0]]
    config = {"decoder": "yolov10", "rotated": True, "box_format": "cxcywh"}
    (found,) = find({"out0": np.float32([row])}, UNMOVED, **config)
    assert (found["index"], found["polygon"]) == (2, [[45, 30], [55, 30], [55, 50], [45, 50]])
    assert found["box"] == [45, 30, 55, 50]


def test_many_rotated_boxes_are_bounded_in_memory() -> None:
    count = 20_000
    rows = np.zeros((count, 10), np.float32)
    rows[:, :2] = np.random.default_rng(0).uniform(0, 96, (count, 2))
    rows[:, 2:4], rows[:, 4] = 5, np.linspace(0.5, 1, count)
    found = find({"out0": rows.T[None]}, UNMOVED, decoder="yolov8", rotated=True)
    assert 0 < len(found) <= 1000


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("name", ["yolov8", "yolov10"])
def test_key_points_are_those_of_ultralytics(name: str, number: int) -> None:
    record = recorded(name, number)
    rows = np.delete(record["rows"], np.s_[-13:-9], axis=1)
    config = {"decoder": name, "keypoints": [3, 3], "score_threshold": 0.25, "iou_threshold": 0.45}
    found = find({"out0": rows.T[None] if name == "yolov8" else rows[None]}, LETTERBOX, **config)
    check_boxes(found, record, np.arange(len(record["scores"])), PICTURE)
    points = np.reshape([row["keypoints"] for row in found], (-1, 3, 3))
    np.testing.assert_allclose(points, record["keypoints"], atol=6e-3)


ONE = {"yolov5": (1, 7, 10), "yolov8": (1, 9, 40), "yolov10": (1, 9, 6), "yolox": (1, 315, 10)}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["yolov5", "yolov8", "yolov10", "yolox", "centernet", "detr", "rt_detr"])
def test_outputs_that_are_no_numbers_are_no_boxes(name: str, value: float) -> None:
    if name in ONE:
        outputs = {"out0": np.full(ONE[name], value, np.float32)}
    elif name == "centernet":
        outputs = {
            "out0": np.full((1, 5, 24, 40), value, np.float32),
            "out1": np.full((1, 2, 24, 40), value, np.float32),
        }
    else:
        classes = 5 + (name == "detr")
        outputs = {"out0": np.full((1, 9, classes), value, np.float32), "out1": np.full((1, 9, 4), value, np.float32)}
    assert find(outputs, UNMOVED, decoder=name) == []


@pytest.mark.parametrize(
    ("name", "shapes", "message"),
    [
        ("yolox", [(1, 300, 10)], "found 300 cells, expected 315 or 317 for an input of 160x96"),
        ("yolox", [(1, 315, 5)], r"expected \(N, cells, 5 \+ classes\)"),
        (
            "centernet",
            [(1, 0, 8, 8), (1, 2, 8, 8)],
            r"found shapes \[1, 0, 8, 8\], \[1, 2, 8, 8\], expected a heat map",
        ),
        ("centernet", [(1, 5, 8, 8), (1, 2, 4, 8)], "expected a heat map"),
        ("detr", [(1, 9, 1), (1, 9, 4)], r"expected \(N, anchors, classes\) and \(N, anchors, 4\)"),
        ("rt_detr", [(1, 9, 0), (1, 9, 4)], r"expected \(N, anchors, classes\)"),
        ("rt_detr", [(1, 9, 4), (1, 9, 4)], "labels: found 5, expected 4"),
    ],
)
def test_outputs_of_other_shapes_are_refused(name: str, shapes: list[tuple[int, ...]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        find({f"out{k}": np.zeros(shape, np.float32) for k, shape in enumerate(shapes)}, UNMOVED, decoder=name)


@pytest.mark.parametrize(
    ("prototypes", "message"),
    [
        ((1, 4, 0, 8), r"output 'out1': found shape \[1, 4, 0, 8\], expected \(N, masks, H, W\)"),
        ((2, 4, 8, 8), "output 'out1': found 2 items, expected 1 as 'out0' has them"),
        ((1, 40, 8, 8), r"output 'out0': found shape \[1, 13, 20\], expected \(N, 4 \+ classes \+ 40, anchors\)"),
    ],
)
def test_prototypes_that_do_not_fit_are_refused(prototypes: tuple[int, ...], message: str) -> None:
    outputs = {"out0": np.zeros((1, 13, 20), np.float32), "out1": np.zeros(prototypes, np.float32)}
    with pytest.raises(ConfigError, match=message):
        find(outputs, UNMOVED, decoder="yolov8", prototypes="out1")


def test_a_hundred_thousand_boxes_are_bounded() -> None:
    rows = np.random.default_rng(0).uniform(0, 1, (1, 9, 100_000)).astype(np.float32)
    rows[:, :4] *= 90
    assert len(find({"out0": rows}, UNMOVED, decoder="yolov8", score_threshold=0, iou_threshold=1)) == 1000


def test_many_masks_of_a_large_picture_have_a_lower_resolution() -> None:
    placement = Placement(picture=(6400, 3840), resized=CANVAS, canvas=CANVAS)
    rows = np.zeros((1, 13, 1000), np.float32)
    rows[0, :4] = np.array([[80, 48, 160, 96]]).T
    rows[0, 4], rows[0, 9:] = 0.9, 1
    outputs = {"out0": rows, "out1": np.ones((1, 4, 24, 40), np.float32)}
    found = find(outputs, placement, decoder="yolov8", prototypes="out1", iou_threshold=1)
    masks = [Image.open(io.BytesIO(base64.b64decode(row["mask"]))) for row in found]
    assert len(masks) == 1000 and sum(mask.width * mask.height for mask in masks) <= 1 << 25
    assert masks[0].getextrema() == (255, 255) and masks[0].width == pytest.approx(
        masks[0].height * 6400 / 3840, rel=0.02
    )


def test_key_points_outside_are_clipped_and_others_are_null() -> None:
    rows = np.zeros((1, 18, 9), np.float32)
    rows[0, :9, 0] = (80, 48, 20, 20, 0.9, 0, 0, 0, 0)
    rows[0, 9:, 0] = (500, -3, 0.5, np.nan, 8, np.inf, 10, 20, 1)
    found = find({"out0": rows}, LETTERBOX, decoder="yolov8", keypoints=[3, 3])
    assert found[0]["keypoints"] == [[320.0, 0.0, 0.5], [None, 0.0, None], [20.0, 24.0, 1.0]]
