"""Tables of the benchmarks, from made-up numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import report
from benchmarks.record import OURS, from_json
from tests.benchmarks.build import MACHINE, record


def rows(text: str) -> list[list[str]]:
    """Return the cells of every line of every table."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]


def test_ratio_names_the_best_rival() -> None:
    records = [record(OURS, 10, 12, 30), record("quick", 15, 18, 18), record("slow", 20, 20, 20)]
    assert report.ratio(records) == (pytest.approx(1.5), "quick")


def test_ratio_of_medians_may_name_another_rival() -> None:
    records = [record(OURS, 10, 10, 10), record("quick", 5, 40, 40), record("slow", 20, 20, 20)]
    assert report.ratio(records) == (pytest.approx(0.5), "quick")
    assert report.ratio(records, median=True) == (pytest.approx(2), "slow")


@pytest.mark.parametrize(
    "records",
    [
        [],
        [record(OURS, 10)],
        [record("quick", 10), record("slow", 20)],
        [record(OURS), record("quick", 10)],
        [record(OURS, 10), record("quick", failure="wrong answer")],
    ],
    ids=["no records", "no rivals", "not us", "ours not timed", "rival not timed"],
)
def test_there_is_no_ratio_without_two_times(records: list[report.Record]) -> None:
    assert report.ratio(records) is None


def test_table_lines_its_columns_up() -> None:
    assert report.table(["network", "ms"], [["a", "1.00"], ["longer name", "12.3"]]).splitlines() == [
        "| network     |   ms |",
        "|-------------|-----:|",
        "| a           | 1.00 |",
        "| longer name | 12.3 |",
    ]


def test_report_has_a_table_for_every_number_of_threads_and_batch() -> None:
    records = [record(OURS, 10, threads=threads, batch=batch) for threads in (1, 2) for batch in (1, 8)]
    titles = [line for line in report.markdown(MACHINE, records).splitlines() if line.startswith("## ")]
    assert titles[:4] == [
        "## 1 thread, batch 1",
        "## 1 thread, batch 8",
        "## 2 threads, batch 1",
        "## 2 threads, batch 8",
    ]


def test_row_gives_fastest_and_median_and_both_ratios() -> None:
    text = report.markdown(MACHINE, [record(OURS, 8, 10, 12), record("quick", 16, 15, 16), record("slow", 123.4)])
    assert rows(text)[2] == ["net", "8.00 / 10.0", "15.0 / 16.0", "123 / 123", "1.88 (quick)", "1.60 (quick)"]


def test_columns_name_the_versions() -> None:
    text = report.markdown(MACHINE, [record(OURS, 1), record("quick", 1)])
    assert rows(text)[0][:3] == ["network", "pnnx-serve 0", "quick 1"]


def test_engine_that_was_not_timed_is_named_with_the_reason() -> None:
    records = [record(OURS, 10), record("slow", failure="wrong answer: differs by 1.0e-02 of the largest magnitude")]
    text = report.markdown(MACHINE, records)
    assert "- slow 2 (net, 1 thread, batch 1): wrong answer: differs by 1.0e-02 of the largest magnitude" in text


def test_engine_that_did_not_run_one_network_leaves_its_cell_empty() -> None:
    records = [record(OURS, 10), record("quick", 10), record(OURS, 10, network="other")]
    row = next(row for row in rows(report.markdown(MACHINE, records)) if row[0] == "other")
    assert row[1:] == ["10.0 / 10.0", report.NOTHING, report.NOTHING, report.NOTHING]


def test_busy_table_is_there_only_where_it_was_asked_for() -> None:
    quiet, busy = record(OURS, 10, 10), record(OURS, 10, 10, busy_times_s=[0.02, 0.02])
    assert "kept busy" not in report.markdown(MACHINE, [quiet])
    assert busy.busy_slowdown == pytest.approx(2)
    assert rows(report.markdown(MACHINE, [busy]))[-1][-2:] == ["10.0", "2.00"]


def test_memory_and_building_have_their_row() -> None:
    memory = {"rss_bytes": 98_000_000, "pss_bytes": 91_000_000}
    built = record(OURS, 10, build_s=0.25, second_s=1.25, warm_build_s=0.03, error_share=2e-6, **memory)
    assert rows(report.markdown(MACHINE, [built]))[-1][4:] == ["0.25", "1.25", "0.03", "98", "91", "2.0e-06"]


def test_saved_records_can_be_read_again(tmp_path: Path) -> None:
    records = [record(OURS, 10, 11, error_share=1e-6), record("slow", failure="no answer")]
    report.save(tmp_path / "results" / "graph", MACHINE, records)
    data = json.loads((tmp_path / "results" / "graph.json").read_text())
    assert [from_json(entry) for entry in data["records"]] == records
    assert data["records"][0]["best_s"] == pytest.approx(0.01)
    assert (tmp_path / "results" / "graph.md").read_text() == report.markdown(MACHINE, records)
