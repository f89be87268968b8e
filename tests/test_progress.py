"""Progress of a run of the tests: lines every few seconds, failures as they come, the usual summary at the end."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import progress

RUN = """
import sys, pytest
from tests import progress
progress.EVERY_S = 0.05
options = ["-p", "no:cacheprovider", "-p", "tests.progress", "--progress", "-o", "console_output_style=classic"]
sys.exit(pytest.main(["-q", *options, *sys.argv[1:]]))
"""
TESTS = """
import time, pytest
@pytest.mark.parametrize("n", range(4))
def test_it(n):
    time.sleep(0.1)
    assert n != 2
@pytest.mark.skip(reason="not now")
def test_skipped(): pass
"""


@pytest.mark.parametrize("processes", [0, 2])
def test_lines_tell_how_far_a_run_is_and_what_failed(processes: int, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").touch()
    command = [sys.executable, "-c", RUN, "-n", str(processes), f"--rootdir={tmp_path}", str(tmp_path)]
    done = subprocess.run(command, cwd=Path(progress.__file__).parents[1], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    told = [re.fullmatch(r"(\d) of 5 tests, (\d) failed, \d+ s", line) for line in lines]
    counts = [(int(line[1]), int(line[2])) for line in told if line]
    assert counts == sorted(counts) and len(counts) >= 3 and counts[-1] == (5, 1)
    assert any(re.fullmatch(r"FAILED (\S*/)?test_it\.py::test_it\[2\]", line) for line in lines)
    assert re.search(r"1 failed, 3 passed, 1 skipped", lines[-1])
