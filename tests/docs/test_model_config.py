"""Tests that every example of docs/model-config.md is served and answers an image by its task."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from tests.app.client import serving
from tests.app.picture_models import Weights, heads
from tests.app.sample_models import elementwise, write_model
from tests.docs.pages import blocks, page

SECTION = page("docs/model-config.md").partition("## One example per task")[2].partition("## Check a configuration")[0]
CONFIGS = [block.text for block in blocks(SECTION) if block.language == "toml"]


def yolo_rows(classes: int, anchors: int) -> NDArray[np.float32]:
    """Return boxes in the middle of an image of 640x640, and the same score for every class."""
    columns = [320, 320, 100, 200] + [0.9] * classes
    return np.repeat(np.array(columns, np.float32)[:, None], anchors, axis=1)


NETWORKS: list[tuple[list[str], Weights]] = [
    (elementwise("add(@0,1)", "(1,3,8,8)f32"), {}),
    heads((224, 224), np.arange(5, dtype=np.float32)),
    heads((240, 320), np.array([[0.1, 0.9]] * 7, np.float32), np.array([[0.2, 0.2, 0.6, 0.8]] * 7, np.float32)),
    heads((640, 640), yolo_rows(5, 16)),
    (elementwise("mul(@0,2)", "(1,3,256,256)f32"), {}),
    (elementwise("mul(@0,0.5)", "(?,3,?,?)f32"), {}),
]
KEYS = [None, {"label", "probability", "index"}, {"label", "score", "index", "box"}, {"label", "score", "index", "box"},
        {"classes", "mask", "width", "height"}, {"image", "width", "height"}]  # fmt: skip


@pytest.mark.parametrize(("config", "network", "keys"), [*zip(CONFIGS, NETWORKS, KEYS, strict=True)])
def test_the_example_is_served_and_answers_an_image(
    config: str, network: tuple[list[str], Weights], keys: set[str] | None, tmp_path: Path
) -> None:
    write_model(tmp_path, "m", *network, config=config)
    (tmp_path / "m" / "labels.txt").write_text("cat\ndog\nbird\nfish\nhorse\n")
    sent = io.BytesIO()
    Image.new("RGB", (60, 40), (10, 200, 90)).save(sent, "png")
    with serving(tmp_path, threads=1) as client:
        assert client.get("/health/ready").status_code == 200, client.get("/models/m").text
        answer = client.post("/models/m/infer", content=sent.getvalue(), headers={"content-type": "image/png"})
    found = answer.json().get("predictions")
    assert answer.status_code == 200, answer.text
    assert (found[0] if isinstance(found, list) else found or {}).keys() == (keys or set())
