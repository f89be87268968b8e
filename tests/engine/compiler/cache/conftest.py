"""What all tests of the cache take for granted."""

from __future__ import annotations

import pytest

from engine.compiler import builder
from engine.compiler.cache import fingerprint


@pytest.fixture(autouse=True)
def sources_that_nobody_edits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else is going on in the folder the tests run in."""
    monkeypatch.setattr(builder, "is_unchanged", lambda: True)
    monkeypatch.setattr(fingerprint, "GENERATOR", "of these tests")
