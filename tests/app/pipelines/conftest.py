"""Stores with pipelines, and one server of the project's own models with a pipeline of both."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.client import Client, serving

STORE = Path(__file__).parent.parent.parent.parent / "model_store"
PICTURES = STORE / "shapes" / "examples"
SCAN = """
[[step]]
name = "find"
model = "shapes"
input = "picture"

[[step]]
name = "read"
model = "digits"
crop = "find.box"
"""


def write_pipeline(store: Path, name: str, text: str) -> None:
    """Write a pipeline into a store."""
    (store / name).mkdir(parents=True, exist_ok=True)
    (store / name / "pipeline.toml").write_text(text)


@pytest.fixture(scope="package")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Return a client of a server with shapes, digits, and pipelines of both."""
    store = tmp_path_factory.mktemp("scans")
    for name in ("shapes", "digits"):
        shutil.copytree(STORE / name, store / name)
    write_pipeline(store, "scan", SCAN)
    write_pipeline(store, "best", f"max_items = 1\n{SCAN}margin = 0.25\nparameters = {{ top_k = 1 }}\n")
    write_pipeline(store, "stars", f"{SCAN}where = {{ find.label = ['star', 'circle'], find.score = 0.5 }}\n")
    with serving(store) as client:
        yield client
