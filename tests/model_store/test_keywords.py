"""The keywords model through the server. The oracle is the word that the speaker was given."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.client import Client, serving

pytest.importorskip("soundfile", reason="needs the extra audio")
pytest.importorskip("soxr", reason="needs the extra audio")
STORE = Path(__file__).parents[2] / "examples/sounds"
MODEL = STORE / "keywords"
EXAMPLES = sorted(MODEL.glob("examples/*.flac"))


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with serving(STORE, threads=1) as found:
        yield found


def test_there_is_an_example_of_each_word() -> None:
    labels = (MODEL / "labels.txt").read_text(encoding="utf-8").splitlines()
    assert sorted(labels) == sorted([*(path.stem for path in EXAMPLES), "silence", "unknown"])


def test_examples_are_the_words_that_they_are_named_after(client: Client) -> None:
    files = [("file", (path.name, path.read_bytes())) for path in EXAMPLES]
    found = client.post("/models/keywords/infer", files=files).json()["predictions"]
    heard = [each[0]["label"] for each in found]
    assert heard == [path.stem for path in EXAMPLES]


def test_the_card_says_what_was_measured() -> None:
    claim = re.search(r"\| ([\d,]+) \| ([\d,]+) \| \*\*([\d.]+)%\*\* \|", (MODEL / "README.md").read_text("utf-8"))
    assert claim is not None
    right, total = (int(value.replace(",", "")) for value in claim.groups()[:2])
    assert f"{right / total:.1%}" == f"{claim[3]}%" and right / total > 0.9
