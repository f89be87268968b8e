"""Texts that the pipeline of examples/rapidocr.py reads in RapidOCR's own pictures, against those that RapidOCR reads.

``OCR_STORE`` is the store that the example writes, ``OCR_PICTURES`` the folder python/tests/test_files of RapidOCR's
repository. tests/data/pipelines/record_texts.py has recorded the texts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.app.client import Client, serving

STORE, PICTURES = (os.environ.get(name) for name in ("OCR_STORE", "OCR_PICTURES"))
TEXTS: dict[str, list[str]] = json.loads(
    (Path(__file__).parents[2] / "data" / "pipelines" / "texts.json").read_text(encoding="utf-8")
)
# Least score of a text, as RapidOCR has it.
LEAST = 0.5
pytestmark = pytest.mark.skipif(
    not (STORE and PICTURES), reason="OCR_STORE and OCR_PICTURES name no folders: python examples/rapidocr.py STORE"
)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with serving(Path(STORE or ""), request_timeout_s=120.0) as client:
        yield client


def read(client: Client, picture: Path) -> list[Any]:
    kind = "png" if picture.suffix == ".png" else "jpeg"
    headers = {"content-type": f"image/{kind}"}
    answer = client.post("/models/ocr/infer", content=picture.read_bytes(), headers=headers)
    assert answer.status_code == 200, answer.text
    found = [line["text"] for line in answer.json()["predictions"]["line"] if line["text"] is not None]
    return [each["text"] for each in found if each["score"] >= LEAST and each["text"].strip()]


@pytest.mark.parametrize("name", TEXTS)
def test_the_texts_are_those_of_rapidocr_in_their_order(client: Client, name: str) -> None:
    assert read(client, Path(PICTURES or "") / name) == TEXTS[name]
