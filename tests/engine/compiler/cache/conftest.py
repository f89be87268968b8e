"""Fixtures of all tests of the cache."""

from __future__ import annotations

import pytest

from engine.compiler import builder
from engine.compiler.cache import fingerprint


@pytest.fixture(autouse=True)
def sources_that_stay_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the sources count as unchanged, even if they are edited while the tests run."""
    monkeypatch.setattr(builder, "is_unchanged", lambda: True)
    monkeypatch.setattr(fingerprint, "GENERATOR", "of these tests")
