"""``cache``: list and clear."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.cli import main


def test_entries_are_listed_and_cleared_and_nothing_else_is(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "cache"
    assert main(["cache", "list", "--cache-dir", str(folder)]) == 0
    assert capsys.readouterr().out == f"0 files, 0 B in {folder}\n"
    assert main(["compile", "linear", "--cache-dir", str(folder)]) == 0
    (folder / "machine.json").write_text("{}")
    (folder / ("0" * 64 + ".link")).symlink_to(folder / "machine.json")
    capsys.readouterr()
    assert main(["cache", "list", "--json", "--cache-dir", str(folder)]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["files"] and all(each["bytes"] == (folder / each["file"]).stat().st_size for each in listed["files"])
    assert main(["cache", "list", "--cache-dir", str(folder)]) == 0
    assert capsys.readouterr().out.startswith("FILE")
    assert main(["cache", "clear", "--cache-dir", str(folder)]) == 0
    assert "removed 1 file" in capsys.readouterr().out or len(listed["files"]) > 1
    assert not any((folder / each["file"]).exists() for each in listed["files"])
    assert (folder / "machine.json").exists()
