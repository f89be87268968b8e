"""Cache sizes reported by the system."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.compiler.measuring.caches import Caches, find_caches


def written(root: Path, *rows: tuple[str, str, str]) -> Path:
    for number, (level, type_, size) in enumerate(rows):
        folder = root / f"index{number}"
        folder.mkdir()
        for name, text in (("level", level), ("type", type_), ("size", size), ("coherency_line_size", "64")):
            (folder / name).write_text(text + "\n")
    return root


def test_levels_for_data_are_found(tmp_path: Path) -> None:
    rows = (("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2048K"), ("3", "Unified", "266240K"))
    assert find_caches(written(tmp_path, *rows)) == Caches(64, 48 << 10, 2 << 20, 260 << 20)


def test_a_missing_third_level_counts_as_zero(tmp_path: Path) -> None:
    assert find_caches(written(tmp_path, ("1", "Data", "32K"), ("2", "Unified", "1M"))).last == 0


@pytest.mark.parametrize("size", ["", "K", "-1K", "many", "9" * 5000, "9" * 11 + "G", "٣K"])
def test_an_invalid_size_counts_as_zero(size: str, tmp_path: Path) -> None:
    assert find_caches(written(tmp_path, ("1", "Data", size))).first in (0, 16 << 30)


def test_without_information_all_sizes_are_zero(tmp_path: Path) -> None:
    assert find_caches(tmp_path) == find_caches(tmp_path / "nowhere") == Caches()
