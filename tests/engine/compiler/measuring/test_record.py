"""A machine is measured once, and what is kept of it is believed only if it can be."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import engine
from engine.compiler.codegen.host import detect
from engine.compiler.measuring import record
from engine.compiler.measuring.caches import Caches
from engine.compiler.measuring.judging import judge
from engine.compiler.measuring.others import OtherWork
from engine.compiler.measuring.rates import Rates, measure
from engine.options import Options
from tests.engine.compiler.measuring.test_judging import rates


class Measured:
    """Stands for measuring: how often it was done, and what comes of it next."""

    def __init__(self) -> None:
        self.count = 0
        self.result = rates()

    def __call__(self, host: object, caches: Caches) -> Rates:
        self.count += 1
        return dataclasses.replace(self.result, caches=caches)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Measured:
    found = Measured()
    monkeypatch.setattr(record, "measure", found)
    monkeypatch.setattr(record, "_known", {})
    return found


def restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "_known", {})


def test_a_machine_is_measured_once(measured: Measured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = Options(cache=tmp_path / "cache")
    first = record.this_host(options)
    assert record.this_host(options) == first and measured.count == 1
    restarted(monkeypatch)
    assert record.this_host(options) == first and measured.count == 1
    restarted(monkeypatch)
    record.this_host(Options(cache=None))
    assert measured.count == 2


def test_a_machine_that_was_busy_is_measured_again_at_the_next_start_and_the_best_of_both_counts(
    measured: Measured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured.result = dataclasses.replace(rates(memory=5e9), is_quiet=False)
    first = record.rates_of(detect(), tmp_path)
    assert record.rates_of(detect(), tmp_path) is first and measured.count == 1
    restarted(monkeypatch)
    measured.result = rates(last=10e9)
    second = record.rates_of(detect(), tmp_path)
    assert (second.memory, second.last, second.is_quiet) == (30e9, 98e9, True)
    restarted(monkeypatch)
    assert record.rates_of(detect(), tmp_path) == second and measured.count == 2


def test_a_machine_that_is_never_quiet_is_measured_a_few_times(
    measured: Measured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured.result = dataclasses.replace(rates(), is_quiet=False)
    for _ in range(10):
        restarted(monkeypatch)
        record.rates_of(detect(), tmp_path)
    assert measured.count == 3


def test_who_asks_for_it_has_it_measured_again(measured: Measured, tmp_path: Path) -> None:
    record.rates_of(detect(), tmp_path)
    measured.result = rates(memory=40e9)
    assert record.rates_of(detect(), tmp_path, again=True).memory == 40e9
    assert record.rates_of(detect(), tmp_path).memory == 40e9 and measured.count == 2


DAMAGE: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "no JSON": lambda path: path.write_bytes(b"{"),
    "nested": lambda path: path.write_bytes(b"[" * 60_000),
    "a list": lambda path: path.write_bytes(b"[]"),
    "a number missing": lambda path: path.write_bytes(json.dumps({"threads": 2}).encode()),
    "not a number": lambda path: path.write_bytes(path.read_bytes().replace(b"3660000000.0", b"NaN")),
    "without end": lambda path: path.write_bytes(path.read_bytes().replace(b"3660000000.0", b"1e999")),
    "too fast": lambda path: path.write_bytes(path.read_bytes().replace(b"3660000000.0", b"1e30")),
    "very long": lambda path: path.write_bytes(b" " * 10**6 + path.read_bytes()),
    "anybody may write": lambda path: path.chmod(0o666),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "a link": lambda path: (path.rename(path.with_suffix(".other")), path.symlink_to(path.with_suffix(".other"))),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_not_to_be_believed_is_measured_anew(
    damage: str, measured: Measured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = record.rates_of(detect(), tmp_path)
    (path,) = tmp_path.iterdir()
    DAMAGE[damage](path)
    restarted(monkeypatch)
    assert record.rates_of(detect(), tmp_path) == expected and measured.count == 2


def test_a_folder_that_cannot_be_written_is_no_error(measured: Measured, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert record.this_host(Options(cache=tmp_path / "file")) == judge(
        detect(), dataclasses.replace(rates(), caches=record.find_caches())
    )


def test_who_does_not_want_it_has_nothing_measured(measured: Measured) -> None:
    assert record.this_host(Options(measure_host=False)) == detect() and measured.count == 0


def test_this_machine_can_be_measured(tmp_path: Path) -> None:
    found = measure(detect(), seconds=0)
    assert found.products > found.chained and min(found.second, found.last, found.memory, found.memory_shared) > 1e6


def test_a_description_says_what_was_measured_and_what_it_means(measured: Measured, tmp_path: Path) -> None:
    told = engine.describe_host(tmp_path)
    assert told["measured"]["memory_bytes_per_s"] == 30e9 and told["lanes"] == detect().lanes
    assert json.loads(json.dumps(told)) == told


def test_the_work_of_others_is_what_is_not_ours(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu 0 0 0 0 0 0 0 0 0 0\n")
    others = OtherWork(stat)
    stat.write_text("cpu 100000000 0 0 0 0 0 0 0 0 0\n")
    assert others.share() > 1


@pytest.mark.parametrize("text", ["", "cpu", "cpu a b c d e f g h", "intr 1 2 3 4 5 6 7 8 9"])
def test_where_the_system_says_nothing_of_others_there_are_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "stat").write_text(text)
    assert OtherWork(tmp_path / "stat").share() == 0 == OtherWork(tmp_path / "none").share()
