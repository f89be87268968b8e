"""Servers that stores are fetched from."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.app.remote.web import Web, web_server


@pytest.fixture
def web() -> Iterator[Web]:
    pytest.importorskip("fsspec", reason="fetching needs the extra [remote]")
    pytest.importorskip("aiohttp", reason="fetching needs the extra [remote]")
    with web_server() as server:
        yield server
