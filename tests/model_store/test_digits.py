"""The digits model through the engine. The oracle is what the writers of the digits said they wrote."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import engine

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "model_store/digits"
EXAMPLES = sorted(MODEL.glob("examples/*.png"))


@pytest.fixture(scope="module")
def session() -> engine.Session:
    return engine.Session(engine.load(MODEL / "1/model.pnnx.param", MODEL / "1/model.pnnx.bin"))


def preprocess(picture: Image.Image) -> NDArray[np.float32]:
    declared = tomllib.loads((MODEL / "config.toml").read_text(encoding="utf-8"))["preprocess"]
    height, width = declared["size"]
    method = Image.Resampling[declared["interpolation"].upper()]
    pixels = np.asarray(picture.convert("L").resize((width, height), method), dtype=np.float32)[None]
    return (pixels * np.float32(declared["scale"]) - np.float32(declared["mean"])) / np.float32(declared["std"])


def held_back() -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    with np.load(Path(__file__).with_name("held_back.npz")) as archive:
        pictures = [Image.fromarray(pixels) for pixels in archive["pixels"]]
        return np.stack([preprocess(picture) for picture in pictures]), archive["labels"]


def test_there_are_two_example_pictures_of_each_digit() -> None:
    assert [path.name for path in EXAMPLES] == [f"digit-{digit}-{letter}.png" for digit in range(10) for letter in "ab"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_picture_is_named_as_its_writer_named_it(session: engine.Session, path: Path) -> None:
    labels = (MODEL / "labels.txt").read_text(encoding="utf-8").splitlines()
    (scores,) = session.run([preprocess(Image.open(path))[None]])
    assert labels[int(scores.argmax())] == path.stem.split("-")[1]


def test_accuracy_on_all_held_back_pictures_is_the_one_on_the_card(session: engine.Session) -> None:
    claim = re.search(r"as the data has them \| (\d+) of (\d+) \|", (MODEL / "README.md").read_text(encoding="utf-8"))
    assert claim is not None
    x, labels = held_back()
    (scores,) = session.run([x])
    assert (int((scores.argmax(axis=1) == labels).sum()), len(labels)) == (int(claim[1]), int(claim[2]))


def test_accuracy_on_all_held_back_pictures_is_at_least_98_percent(session: engine.Session) -> None:
    x, labels = held_back()
    (scores,) = session.run([x])
    assert np.mean(scores.argmax(axis=1) == labels) >= 0.98
