"""Order of engines and summary of their times; absolute times are not tested."""

from __future__ import annotations

import time

import pytest

from app.measuring.contest import fastest_kernels, summary, take_turns, turn, turns


def test_engines_take_turns_and_the_first_run_of_each_does_not_count() -> None:
    calls: list[str] = []
    engines = {name: lambda name=name: calls.append(name) for name in "ab"}
    told: list[tuple[int, int]] = []
    times = take_turns(engines, 1e-9, lambda done, of: told.append((done, of)))
    assert "".join(calls) == "aabbbbaa" * 5
    assert [times[name].runs for name in "ab"] == [10, 10]
    assert told == [(number // 2, 10) for number in range(20)]


def test_a_turn_begins_when_threads_of_the_engine_before_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = {"cpu": 0.0, "wall": 0.0}
    spins_until: list[float] = [0.03, 99.0]

    def sleep(seconds: float) -> None:
        busy = min(seconds, max(0.0, spins_until[0] - clock["wall"]))
        clock["cpu"], clock["wall"] = clock["cpu"] + busy, clock["wall"] + seconds

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "process_time", lambda: clock["cpu"])
    monkeypatch.setattr(time, "monotonic", lambda: clock["wall"])
    began: list[float] = []
    take_turns({"a": lambda: began.append(clock["wall"])}, 1e-9, lambda *_: None)
    assert 0.03 <= began[0] < 0.04  # two looks more
    spins_until.pop(0)
    began.clear()
    take_turns({"a": lambda: began.append(clock["wall"])}, 1e-9, lambda *_: None)
    assert began[2] - began[0] < 0.25  # a thread that never sleeps delays a turn by a bounded time


def test_no_engine_always_follows_the_same_one() -> None:
    assert list(turns(["a", "b", "c"], 3)) == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]
    assert list(turns([], 3)) == []


def test_a_turn_has_its_least_number_of_runs_and_gives_the_last_answer() -> None:
    answers = iter(range(9))
    times, last = turn(lambda: next(answers), 0, least=3)
    assert (len(times), last) == (3, 3)


def test_figures_are_nearest_ranks() -> None:
    found = summary([float(n) for n in range(200, 0, -1)])
    assert (found.least_s, found.median_s, found.p99_s, found.runs) == (1, 100, 198, 200)
    assert summary([2.0]) == type(found)(least_s=2, median_s=2, p99_s=2, runs=1)


def test_kernels_are_shown_at_their_fastest() -> None:
    profiles = [[{"kernel": "a", "time_us": 3.0}, {"kernel": "b", "time_us": 1.0}]] + [
        [{"kernel": "a", "time_us": 2.0}, {"kernel": "b", "time_us": 4.0}]
    ]
    assert [each["time_us"] for each in fastest_kernels(profiles)] == [2, 1]
