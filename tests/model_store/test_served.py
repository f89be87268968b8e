"""The three models of the store, over HTTP with their tasks."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.app.client import Client, serving

STORE = Path(__file__).parent.parent.parent / "model_store"
PNG = {"content-type": "image/png"}


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with serving(STORE, threads=1) as serving_client:
        yield serving_client


def ask(client: Client, model: str, picture: str, **headers: str) -> Any:
    body = (STORE / model / "examples" / picture).read_bytes()
    return client.post(f"/models/{model}/infer", content=body, headers={**PNG, **headers})


def decibels(a: np.ndarray, b: np.ndarray) -> float:
    return float(10 * np.log10(255**2 / np.mean((a.astype(float) - b.astype(float)) ** 2)))


def overlap(a: list[float], b: list[float]) -> float:
    """Intersection over union of two boxes x0 y0 x1 y1."""
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    shared = max(width, 0) * max(height, 0)
    return shared / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared)


def test_every_model_is_ready(client: Client) -> None:
    assert client.get("/health/ready").status_code == 200
    assert [model["name"] for model in client.get("/models").json()["models"]] == ["digits", "shapes", "superres"]


@pytest.mark.parametrize("digit", range(10))
def test_digits_names_the_digit(client: Client, digit: int) -> None:
    predictions = ask(client, "digits", f"digit-{digit}-a.png").json()["predictions"]
    assert predictions[0]["label"] == str(digit)


@pytest.mark.parametrize("name", ["shapes-a.png", "shapes-b.png", "shapes-c.png", "shapes-d.png"])
def test_shapes_finds_every_shape_where_it_was_drawn(client: Client, name: str) -> None:
    drawn = json.loads((STORE / "shapes" / "examples" / "expected.json").read_text())[name]
    found = ask(client, "shapes", name).json()["predictions"]
    assert sorted(each["label"] for each in found) == sorted(each["label"] for each in drawn)
    for shape in drawn:
        assert max(overlap(each["box"], shape["box"]) for each in found if each["label"] == shape["label"]) >= 0.5


@pytest.mark.parametrize("name", ["chelsea", "coffee"])
@pytest.mark.parametrize("accept", ["application/json", "image/png"])
def test_superres_doubles_a_picture_better_than_bicubic(client: Client, name: str, accept: str) -> None:
    answer = ask(client, "superres", f"{name}-small.png", accept=accept)
    content = answer.content if accept == "image/png" else base64.b64decode(answer.json()["predictions"]["image"])
    original = Image.open(STORE / "superres" / "examples" / f"{name}-original.png").convert("RGB")
    small = Image.open(STORE / "superres" / "examples" / f"{name}-small.png").convert("RGB")
    ours = decibels(np.asarray(Image.open(io.BytesIO(content))), np.asarray(original))
    bicubic = decibels(np.asarray(small.resize(original.size, Image.Resampling.BICUBIC)), np.asarray(original))
    assert ours > bicubic + 0.5
