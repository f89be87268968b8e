"""torch and the converter belong to an extra: what needs them is skipped where they are not installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

NETWORKS = Path(__file__).with_name("networks.py")


@pytest.fixture
def torch() -> Iterator[Any]:
    module = pytest.importorskip("torch")
    pytest.importorskip("pnnx")
    threads = module.get_num_threads()
    module.set_num_threads(1)
    module.manual_seed(0)
    yield module
    module.set_num_threads(threads)


@pytest.fixture
def networks(torch: Any) -> str:
    """The file of networks, as a source to export from."""
    return str(NETWORKS)
