"""Parts of the tests: none lost between them, and five commits in a row may run all of the rest."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.parts import FIFTHS, REST, TESTS, is_chosen, is_rest, is_taken

FILES = sorted(path.relative_to(TESTS) for path in TESTS.rglob("test_*.py"))


@pytest.mark.parametrize("path", REST)
def test_every_path_of_the_rest_is_there(path: str) -> None:
    assert (TESTS / path).exists()


def test_hashes_of_every_remainder_together_choose_each_file_of_the_rest_once() -> None:
    rest = [path for path in FILES if is_rest(path)]
    fifths = [[path for path in rest if is_chosen(path, f"c0ffee{last:x}")] for last in range(FIFTHS)]
    assert sorted(path for fifth in fifths for path in fifth) == rest
    assert all(fifths)


def test_every_file_is_in_the_main_part_or_in_the_rest() -> None:
    parts = [[path for path in FILES if is_taken(path, part)] for part in ("main", "rest", "all")]
    assert sorted(parts[0] + parts[1]) == parts[2] == FILES
    assert all(parts)


def test_a_run_collects_only_files_of_its_part() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "--part=main"]
    done = subprocess.run(
        [*command, "tests/test_parts.py", "tests/docs"], cwd=TESTS.parent, capture_output=True, text=True, check=False
    )
    files = {line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line}
    assert files == {"tests/test_parts.py"}, done.stdout
