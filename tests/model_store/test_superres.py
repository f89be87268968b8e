"""The superres model through the engine. The oracles are the photographs before they were halved, and Pillow."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import engine

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "model_store/superres"
EXAMPLES = sorted(MODEL.glob("examples/*-small.png"))


@pytest.fixture(scope="module")
def graph() -> engine.RuntimeGraph:
    return engine.load(MODEL / "1/model.pnnx.param", MODEL / "1/model.pnnx.bin")


@pytest.fixture(scope="module")
def session(graph: engine.RuntimeGraph) -> engine.Session:
    return engine.Session(graph)


def enlarge(session: engine.Session, small: Image.Image) -> Image.Image:
    declared = tomllib.loads((MODEL / "config.toml").read_text(encoding="utf-8"))
    values = np.asarray(small, np.float32).transpose(2, 0, 1)[None] * np.float32(declared["preprocess"]["scale"])
    (enlarged,) = session.run([values])
    return Image.fromarray((enlarged[0] * declared["image"]["scale"]).round().astype(np.uint8).transpose(1, 2, 0))


def psnr(found: Image.Image, expected: Image.Image) -> float:
    difference = np.asarray(found, np.float64) - np.asarray(expected, np.float64)
    return 10 * math.log10(255**2 / float(np.mean(difference**2)))


def noise(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(0).random(shape, np.float32)


def test_there_are_two_example_pictures() -> None:
    assert [path.name for path in EXAMPLES] == ["chelsea-small.png", "coffee-small.png"]


def test_batch_height_and_width_are_open(graph: engine.RuntimeGraph) -> None:
    (port,) = graph.inputs
    assert port.spec is not None
    assert port.spec.shape == (None, 3, None, None)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_held_back_picture_comes_closer_to_the_original_than_by_bicubic(session: engine.Session, path: Path) -> None:
    small, original = Image.open(path), Image.open(path.with_name(path.name.replace("small", "original")))
    bicubic = small.resize(original.size, Image.Resampling.BICUBIC)
    assert psnr(enlarge(session, small), original) > psnr(bicubic, original) + 0.75


@pytest.mark.parametrize("size", [(1, 1), (1, 7), (2, 3), (31, 45), (64, 33)])
def test_any_size_is_doubled_and_stays_within_0_and_1(session: engine.Session, size: tuple[int, int]) -> None:
    (enlarged,) = session.run([noise(1, 3, *size)])
    assert enlarged.shape == (1, 3, 2 * size[0], 2 * size[1])
    assert enlarged.min() >= 0
    assert enlarged.max() <= 1


def test_pictures_of_a_batch_are_enlarged_as_each_alone(session: engine.Session) -> None:
    pictures = noise(3, 3, 9, 14)
    (together,) = session.run([pictures])
    alone = np.concatenate([session.run([picture[None]])[0] for picture in pictures])
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-5)


def test_folder_is_smaller_than_a_megabyte() -> None:
    assert sum(path.stat().st_size for path in MODEL.rglob("*") if path.is_file()) < 1_000_000
