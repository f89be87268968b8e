"""A machine is measured once, and what is kept of it is believed only if it can be."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import engine
from engine.compiler.codegen.host import detect
from engine.compiler.measuring import record
from engine.compiler.measuring.bench import measure
from engine.compiler.measuring.caches import Caches
from engine.compiler.measuring.judging import judge
from engine.compiler.measuring.later import when_quiet
from engine.compiler.measuring.others import OtherWork
from engine.compiler.measuring.rates import Rates
from engine.options import Options
from tests.engine.compiler.measuring.test_judging import rates


class Measured:
    """Stands for measuring: how often it was done, and what comes of it next."""

    def __init__(self) -> None:
        self.count = 0
        self.result = rates(fetched=(9e9, 14e9, 19e9, 20e9, 20.5e9), stranded=(20e9, 30e9, 31e9, 32e9, 33e9))
        self.later: list[partial[bool]] = []

    def __call__(self, host: object, caches: Caches) -> Rates:
        self.count += 1
        return dataclasses.replace(self.result, caches=caches)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Measured:
    found = Measured()
    monkeypatch.setattr(record, "measure", found)
    monkeypatch.setattr(record, "when_quiet", found.later.append)
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


def test_a_machine_that_was_busy_is_measured_again_later_and_the_best_of_both_is_for_the_next_process(
    measured: Measured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured.result = dataclasses.replace(rates(memory=5e9), is_quiet=False)
    first = record.rates_of(detect(), tmp_path)
    assert [each.args for each in measured.later] == [(detect(), tmp_path)]
    measured.result = rates(last=10e9)
    assert measured.later[0]() is False and measured.count == 2
    assert record.rates_of(detect(), tmp_path) is first
    restarted(monkeypatch)
    second = record.rates_of(detect(), tmp_path)
    assert (second.memory, second.last, second.is_quiet) == (30e9, 98e9, True)
    assert measured.count == 2 and len(measured.later) == 1


def test_a_start_does_not_wait_for_a_machine_that_was_busy_to_be_measured(
    measured: Measured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured.result = dataclasses.replace(rates(), is_quiet=False)
    for _ in range(10):
        restarted(monkeypatch)
        record.rates_of(detect(), tmp_path)
    assert measured.count == 1


def test_a_machine_that_is_never_quiet_is_measured_a_few_times(measured: Measured, tmp_path: Path) -> None:
    measured.result = dataclasses.replace(rates(), is_quiet=False)
    record.rates_of(detect(), tmp_path)
    assert [measured.later[0]() for _ in range(3)] == [True, False, False] and measured.count == 3


def test_what_is_found_to_be_a_little_higher_changes_nothing(measured: Measured, tmp_path: Path) -> None:
    measured.result = dataclasses.replace(measured.result, is_quiet=False)
    first = record.rates_of(detect(), tmp_path)
    again = rates(
        memory=31e9, second=100e9, fetched=(9e9, 14e9, 20e9, 10e9, 30e9), stranded=(20e9, 40e9, 20e9, 33e9, 34e9)
    )
    found = again.best_with(first)
    assert (found.memory, found.second, found.is_quiet, found.times) == (30e9, 117e9, True, 2)
    assert found.fetched == (9e9, 14e9, 19e9, 20e9, 30e9)
    assert found.stranded == (20e9, 40e9, 31e9, 32e9, 33e9)


def test_when_a_note_is_gone_nothing_is_measured_again(measured: Measured, tmp_path: Path) -> None:
    assert record.measure_again(detect(), tmp_path) is False and measured.count == 0


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
    "a distance too few": lambda path: path.write_bytes(path.read_bytes().replace(b"19000000000.0,", b"")),
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
        detect(), dataclasses.replace(measured.result, caches=record.find_caches())
    )


def test_who_does_not_want_it_has_nothing_measured(measured: Measured) -> None:
    assert record.this_host(Options(measure_host=False)) == detect() and measured.count == 0


def test_this_machine_can_be_measured(tmp_path: Path) -> None:
    found = measure(detect(), seconds=0)
    for _ in range(9):  # while others work, any one may say anything
        found = found.best_with(measure(detect(), seconds=0))
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
    assert others.share(1.0) > 1 and others.share(1e9) == 0


@pytest.mark.parametrize("text", ["", "cpu", "cpu a b c d e f g h", "intr 1 2 3 4 5 6 7 8 9"])
def test_where_the_system_says_nothing_of_others_there_is_this_program(text: str, tmp_path: Path) -> None:
    (tmp_path / "stat").write_text(text)
    for path in (tmp_path / "stat", tmp_path / "none"):
        others = OtherWork(path)
        sum(range(10_000))
        assert others.share(1e9) == 0 < others.share(0.0)


def test_what_is_to_be_done_when_nobody_works_is_done_then_until_it_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    shares, done, waited = iter([0.5, 0.0, 0.2, 0.01]), list[int](), list[float]()
    monkeypatch.setattr(OtherWork, "share", lambda self, own_s: next(shares))

    def wait(seconds: float) -> bool:
        waited.append(seconds)
        return False

    def do() -> bool:
        done.append(len(waited))
        return len(done) < 2

    when_quiet(do, wait).join()
    assert done == [4, 8] and waited[::2] == sorted(waited[::2]) and waited[0] >= 10


def test_when_the_process_ends_nothing_is_done() -> None:
    when_quiet(lambda: pytest.fail("it was done"), lambda seconds: True).join()
