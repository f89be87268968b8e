"""``pnnx-serve calibrate``: the machine is measured, shown and kept where starts look for it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.cli import main


def test_this_machine_is_measured_shown_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["calibrate", "--cache-dir", str(tmp_path / "kept")])
    out, error = capsys.readouterr()
    lines = out.splitlines()
    assert (status, error) == (0, "")
    assert re.fullmatch(r".+: \w+, \d+ lanes, \d+ registers", lines[0])
    assert any(re.fullmatch(r"memory\s+\d+", line) for line in lines)
    assert len(list((tmp_path / "kept").iterdir())) == 1
