"""Pages of results: the newest figures of each kind, and the pages that are in the repository."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import report
from benchmarks.page import COMMANDS, README, RESULTS, SECTIONS, draw, file_name, overview, page
from benchmarks.raw import raw_text, unpack
from benchmarks.record import OURS, Record
from tests.benchmarks.build import MACHINE, record


def networks(folder: Path, name: str, date: str, *records: Record) -> None:
    report.save(folder / name, MACHINE | {"date": date, "microarchitecture": "Abacus 2"}, records)


def section(folder: Path, name: str, date: str, body: str) -> None:
    data: dict[str, Any] = {"kind": "startup", "machine": MACHINE | {"date": date}, "how": "5 starts", "body": body}
    (folder / f"{name}.json").write_text(raw_text(data), encoding="utf-8")


def test_the_newest_result_of_each_network_is_on_the_page(tmp_path: Path) -> None:
    raw, results = tmp_path / "raw", tmp_path / "results"
    networks(raw, "b", "2026-01-01 10:00", record(OURS, 10), record("quick", 15), record(OURS, 1, network="other"))
    networks(raw, "a", "2026-01-02 10:00", record(OURS, 5), record("slow", 20))
    (path,) = draw(raw, results)
    text = path.read_text(encoding="utf-8")
    assert path.name == "abacus-2.md"
    (row,) = [line for line in text.splitlines() if line.startswith("| net ")]
    assert [cell.strip() for cell in row.split("|")][2:5] == ["5.00 / 5.00", "20.0 / 20.0", "4.00"]
    (row,) = [line for line in text.splitlines() if line.startswith("| batch 1, 1 thread ")]
    assert [cell.strip() for cell in row.split("|")][2:4] == ["1", "4.00"]


def test_a_page_is_drawn_again_without_raw_results(tmp_path: Path) -> None:
    raw, results = tmp_path / "raw", tmp_path / "results"
    networks(raw, "a", "2026-01-02 10:00", record(OURS, 5), record("slow", failure="wrong answer"))
    before = draw(raw, results)[0].read_bytes()
    (after,) = draw(tmp_path / "empty", results)
    assert after.read_bytes() == before and b"- net, slow: wrong answer" in before


def test_a_section_is_replaced_by_a_newer_one_alone(tmp_path: Path) -> None:
    raw, results = tmp_path / "raw", tmp_path / "results"
    raw.mkdir()
    section(raw, "a", "2026-01-02 10:00", "| newer |")
    section(raw, "b", "2026-01-01 10:00", "| older |")
    (path,) = draw(raw, results)
    text = path.read_text(encoding="utf-8")
    assert path.name == "abacus.md"
    assert "| newer |" in text and "| older |" not in text


def test_a_processor_is_named_by_its_microarchitecture() -> None:
    assert file_name({"microarchitecture": "Emerald Rapids", "processor": "x"}) == "emerald-rapids"
    assert file_name({"microarchitecture": None, "processor": "AMD Something 9 (avx2)"}) == "amd-something-9"


def test_every_measured_section_has_a_title() -> None:
    assert set(COMMANDS) - {"networks"} <= set(SECTIONS)


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json.gz")), ids=lambda path: str(path.name))
def test_the_pages_in_the_repository_are_those_of_their_data(path: Path) -> None:
    data = unpack(path)
    assert path.stat().st_size < 300_000
    if "sections" in data:
        name = path.name.removesuffix(".json.gz")
        assert (RESULTS / f"{name}.md").read_text(encoding="utf-8") == page(data), "python -m benchmarks.page"


def test_the_overview_is_that_of_the_pages() -> None:
    pages = {path.name.removesuffix(".json.gz"): unpack(path) for path in RESULTS.glob("*.json.gz")}
    text = overview({name: data for name, data in pages.items() if "sections" in data})
    assert text in README.read_text(encoding="utf-8"), "python -m benchmarks.page"
