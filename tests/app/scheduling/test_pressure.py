"""A burst is answered, a lasting overload is not let in: a queue of one server, in made-up time."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import pytest

from app.scheduling.pace import Pace
from app.scheduling.pressure import Marks, Pressure


@dataclass
class Seen:
    """When requests were answered, and how long those took; when others were refused."""

    answered: list[tuple[float, float]] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)

    def answered_after(self, start: float) -> list[float]:
        return sorted(took for at, took in self.answered if at > start)


class Server:
    """One request after the other, each as long as the next."""

    def __init__(self, service_s: float, places: int = 65) -> None:
        self.service_s, self.places = service_s, places
        self.pressure, self.pace = Pressure(), Pace()
        self.ends: list[float] = []
        self.pace.ran(service_s, 1)

    def ask(self, now: float) -> float | None:
        """When it is answered; None where it is refused."""
        self.ends = [end for end in self.ends if end > now]
        wait_s = self.pace.wait_s(unprepared=0, threads=1, items=len(self.ends), runs=1)
        if len(self.ends) >= self.places or not self.pressure.admits(wait_s, self.pace.marks(1), now):
            return None
        self.ends.append(max([now, *self.ends]) + self.service_s)
        return self.ends[-1]


def clients(server: Server, count: int, seconds: float, *, start: float = 0.0, again_s: float = 0.002) -> Seen:
    """So many that ask again as soon as they are answered, and a little after they were refused."""
    seen, events = Seen(), [(start + number * 1e-5, number) for number in range(count)]
    while events:
        now, number = heapq.heappop(events)
        if now > start + seconds:
            continue
        end = server.ask(now)
        if end is None:
            seen.refused.append(now)
        else:
            seen.answered.append((end, end - now))
        heapq.heappush(events, (now + again_s if end is None else end, number))
    return seen


@pytest.mark.parametrize("service_s", [0.0002, 0.001, 0.05, 2.0])
@pytest.mark.parametrize("count", [1, 8, 16, 24])
def test_a_few_who_ask_again_at_once_are_all_answered_however_long_that_goes_on(service_s: float, count: int) -> None:
    seen = clients(Server(service_s), count, 500 * service_s)
    assert not seen.refused and len(seen.answered) >= 500


def test_a_hundred_clients_of_a_small_model_are_all_answered() -> None:
    assert not clients(Server(0.0002, places=1000), 100, 1.0).refused


@pytest.mark.parametrize("service_s", [0.001, 0.05])
def test_of_a_burst_all_are_answered_and_so_is_who_comes_when_it_is_over(service_s: float) -> None:
    server = Server(service_s)
    for start in (0.0, 100.0, 200.0):
        assert all(server.ask(start) is not None for _ in range(65))
        assert server.ask(start + 60 * service_s) is not None
    assert not server.pressure.is_high


@pytest.mark.parametrize("service_s", [0.001, 0.05])
@pytest.mark.parametrize("count", [40, 200])
def test_under_a_lasting_overload_the_model_stays_at_work_and_who_is_let_in_waits_a_few_runs(
    service_s: float, count: int
) -> None:
    seconds = 1000 * service_s
    seen = clients(Server(service_s), count, seconds, again_s=3 * service_s)
    assert len(seen.answered) >= 0.99 * seconds / service_s and seen.refused
    took = seen.answered_after(max(0.1, 32 * service_s) + 70 * service_s)  # when the burst it began with is over
    short_s = max(0.005, 4 * service_s)
    assert took[len(took) // 2] <= short_s + 2 * service_s
    assert took[-1] <= 27 * service_s  # while it is tried whether it is over
    assert sum(each > short_s + 2 * service_s for each in took) < 0.1 * len(took)


def test_when_an_overload_is_over_a_few_are_all_answered_again_although_they_never_stop_asking() -> None:
    server = Server(0.001)
    assert clients(server, 100, 1.0, again_s=0.01).refused
    later = clients(server, 16, 20.0, start=1.0, again_s=0.01)
    assert later.refused and max(later.refused) < 16.0 and not server.pressure.is_high


def test_when_nobody_was_refused_for_long_a_burst_may_come_again() -> None:
    server = Server(0.001)
    clients(server, 100, 1.0, again_s=0.01)
    assert server.pressure.is_high
    assert all(server.ask(3.0) is not None for _ in range(65))


def test_trials_come_ever_more_seldom_while_it_goes_on() -> None:
    pressure, marks = Pressure(), Marks.of(0.001, 0.001)
    assert pressure.admits(1.0, marks, 0.0) and not pressure.admits(1.0, marks, 0.2)
    trials, was = [], 0.2
    for step in range(1, 8_000):
        now = 0.2 + step * 0.025
        if pressure.admits(marks.long_s, marks, now):  # more than a short wait
            assert not pressure.admits(1.0, marks, now)
            trials.append(round(now - was))
            was = now
    assert trials == [2, 4, 8, 16, 30, 30, 30, 30, 30]


def test_a_run_of_many_is_not_kept_waiting_for_them() -> None:
    marks = Marks.of(turn_s=0.002, run_s=0.016)  # eight of them share it
    assert marks.short_s == 2 * 0.016 and marks.long_s > marks.short_s


def test_what_follows_at_once_says_how_long_many_wait_with_all_that_is_done_in_between() -> None:
    pace = Pace()
    assert pace.wait_s(unprepared=3, threads=1, items=3, runs=1) == 0 and pace.marks(1).short_s == 0.005
    pace.ran(0.010, 2)
    assert pace.wait_s(unprepared=0, threads=1, items=4, runs=1) == pytest.approx(0.020)
    pace.ran(0.010, 2, turn_s=0.030)
    assert pace.wait_s(unprepared=0, threads=1, items=4, runs=1) == pytest.approx(0.060)
    assert pace.wait_s(unprepared=0, threads=1, items=4, runs=2) == pytest.approx(0.060)
    assert pace.marks(1).short_s == pytest.approx(0.060)
