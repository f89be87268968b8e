"""Stores, and servers that they are fetched from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.remote.stores import write
from tests.app.remote.web import Web, web_server


@pytest.fixture
def web() -> Iterator[Web]:
    pytest.importorskip("fsspec", reason="fetching needs the extra [remote]")
    pytest.importorskip("aiohttp", reason="fetching needs the extra [remote]")
    with web_server() as server:
        yield server


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Two models, before they are put anywhere."""
    write(tmp_path / "source", "one", 1)
    write(tmp_path / "source", "two", 2)
    return tmp_path / "source"
