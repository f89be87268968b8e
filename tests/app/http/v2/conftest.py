"""Fixture: one server for read-only tests of the protocol."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.app.client import Client, serving
from tests.app.v2_models import write_v2_zoo


@pytest.fixture(scope="package")
def v2(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    store = tmp_path_factory.mktemp("v2")
    write_v2_zoo(store)
    with serving(store) as client:
        yield client
