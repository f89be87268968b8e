"""Tests under which no lines are counted are there; a room that moved would be counted, and take twice the time."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import UNCOUNTED

TESTS = Path(__file__).parent.parent


def test_all_that_is_not_counted_is_there() -> None:
    paths = [path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py")]
    text = {path: (TESTS / path).read_text() for path in paths}

    def is_there(entry: str) -> bool:
        file, _, test = entry.partition("::")
        return any(path.startswith(file) and f"def {test}" in text[path] for path in paths)

    assert not [entry for entry in UNCOUNTED if not is_there(entry)]
