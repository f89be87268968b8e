"""The shapes model through the engine. The oracle is where the shapes of the shipped pictures were drawn."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import engine

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "model_store/shapes"
CONFIG: dict[str, Any] = tomllib.loads((MODEL / "config.toml").read_text(encoding="utf-8"))
LABELS = (MODEL / "labels.txt").read_text(encoding="utf-8").splitlines()
EXPECTED: dict[str, list[dict[str, Any]]] = json.loads((MODEL / "examples/expected.json").read_text(encoding="utf-8"))
SIZE: int = CONFIG["preprocess"]["size"][0]

Boxes = NDArray[np.float32]


@pytest.fixture(scope="module")
def session() -> engine.Session:
    return engine.Session(engine.load(MODEL / "1/model.pnnx.param", MODEL / "1/model.pnnx.bin"))


def letterbox(picture: Image.Image) -> tuple[NDArray[np.float32], float, tuple[int, int]]:
    """The network's input (1, 3, SIZE, SIZE), and how a box of the picture gets there: times ratio, plus origin."""
    ratio = min(SIZE / picture.width, SIZE / picture.height)
    width, height = round(picture.width * ratio), round(picture.height * ratio)
    origin = (SIZE - width) // 2, (SIZE - height) // 2
    canvas = Image.new("RGB", (SIZE, SIZE), (CONFIG["preprocess"]["fill"],) * 3)
    canvas.paste(picture.resize((width, height), Image.Resampling.BILINEAR), origin)
    pixels = np.asarray(canvas, np.float32).transpose(2, 0, 1)[None]
    return pixels * np.float32(CONFIG["preprocess"]["scale"]), ratio, origin


def overlap(box: Boxes, boxes: Boxes) -> Boxes:
    sides = np.minimum(box[2:], boxes[:, 2:]) - np.maximum(box[:2], boxes[:, :2])
    shared = np.maximum(sides, 0).prod(axis=1)
    union: Boxes = (box[2:] - box[:2]).prod() + (boxes[:, 2:] - boxes[:, :2]).prod(axis=1) - shared
    ratio: Boxes = shared / union
    return ratio


def suppress(boxes: Boxes, scores: Boxes, classes: NDArray[np.intp]) -> list[int]:
    kept: list[int] = []
    for index in np.argsort(-scores):
        rivals = boxes[[other for other in kept if classes[other] == classes[index]]]
        if (overlap(boxes[index], rivals) <= CONFIG["detection"]["iou_threshold"]).all():
            kept.append(int(index))
    return kept


def detect(session: engine.Session, picture: Image.Image) -> list[tuple[str, Boxes]]:
    """Labels and corners in pixels of the picture."""
    x, ratio, origin = letterbox(picture)
    output = session.run([x])[0][0]
    output = output[:, output[4:].max(axis=0) >= CONFIG["detection"]["score_threshold"]]
    center, size = output[:2].T, output[2:4].T
    corners = np.concatenate([center - size / 2, center + size / 2], axis=1)
    classes = output[4:].argmax(axis=0)
    kept = suppress(corners, output[4:].max(axis=0), classes)
    return [(LABELS[classes[index]], (corners[index] - np.tile(origin, 2)) / ratio) for index in kept]


def test_every_example_picture_has_its_boxes() -> None:
    assert sorted(EXPECTED) == sorted(path.name for path in MODEL.glob("examples/*.png"))


def test_examples_show_every_label() -> None:
    assert {box["label"] for boxes in EXPECTED.values() for box in boxes} == set(LABELS)


@pytest.mark.parametrize("name", EXPECTED)
def test_shapes_of_example_picture_are_found_and_nothing_else(session: engine.Session, name: str) -> None:
    found = detect(session, Image.open(MODEL / "examples" / name))
    assert sorted(label for label, _ in found) == sorted(box["label"] for box in EXPECTED[name])
    for box in EXPECTED[name]:
        same = np.array([corners for label, corners in found if label == box["label"]])
        assert overlap(np.array(box["box"], np.float32), same).max() >= 0.5


def test_output_has_four_sides_and_a_score_of_0_to_1_for_each_label(session: engine.Session) -> None:
    (output,) = session.run([np.full((2, 3, SIZE, SIZE), 0.5, np.float32)])
    assert output.shape == (2, 4 + len(LABELS), (SIZE // 8) ** 2 + (SIZE // 16) ** 2)
    assert output[:, 4:].min() >= 0
    assert output[:, 4:].max() <= 1


def test_pictures_of_a_batch_are_answered_as_each_alone(session: engine.Session) -> None:
    pictures = [letterbox(Image.open(MODEL / "examples" / name))[0] for name in EXPECTED]
    (together,) = session.run([np.concatenate(pictures)])
    alone = np.concatenate([session.run([picture])[0] for picture in pictures])
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-3)


def test_folder_is_smaller_than_a_megabyte() -> None:
    assert sum(path.stat().st_size for path in MODEL.rglob("*") if path.is_file()) < 1_000_000
