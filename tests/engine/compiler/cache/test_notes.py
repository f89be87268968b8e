"""Notes of a program are found again, and no state of a note is an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.compiler.cache import notes
from engine.compiler.cache.notes import read_note, write_note


def test_a_note_that_cannot_be_stored_is_ignored(tmp_path: Path) -> None:
    write_note(tmp_path, "large", bytes(notes.MAX_BYTES + 1))
    assert read_note(tmp_path, "large") is None
    (tmp_path / f"long{notes.SUFFIX}").write_bytes(bytes(notes.MAX_BYTES + 1))
    assert read_note(tmp_path, "long") is None
    (tmp_path / "file").write_text("no folder")
    write_note(tmp_path / "file", "key", b"x")
    assert read_note(tmp_path / "file", "key") is None
    assert [each.name for each in tmp_path.iterdir() if "unfinished" in each.name] == []


def test_a_note_writable_by_other_users_is_not_read(tmp_path: Path) -> None:
    write_note(tmp_path, "key", b"x")
    (tmp_path / f"key{notes.SUFFIX}").chmod(0o666)
    assert read_note(tmp_path, "key") is None


def test_old_notes_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notes, "MAX_NOTES", 3)
    for number in range(6):
        write_note(tmp_path, str(number), b"x")
    assert len(list(tmp_path.glob(f"*{notes.SUFFIX}"))) == 3
    assert read_note(tmp_path, "5") == b"x"
