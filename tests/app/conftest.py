"""Fixture: one app with every kind of model, shared by read-only tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.client import Client, serving
from tests.app.sample_models import write_zoo


@pytest.fixture(scope="package")
def zoo_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("zoo")
    write_zoo(store)
    return store


@pytest.fixture(scope="package")
def zoo(zoo_store: Path) -> Iterator[Client]:
    with serving(zoo_store) as client:
        yield client
