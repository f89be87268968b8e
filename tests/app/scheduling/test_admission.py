"""Tests of admission: simulations of a server with one queue in virtual time."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field

import pytest

from app.errors import QueueFullError
from app.scheduling.admission import DEFAULT_MAX_WAIT_S, FEW_REQUESTS, Admission, StepTimes


@dataclass
class Seen:
    """Times of answers and refusals, and their durations and errors."""

    answered: list[tuple[float, float]] = field(default_factory=list)
    refused: list[tuple[float, QueueFullError]] = field(default_factory=list)


class Server:
    """Simulated server that runs one request at a time and is descheduled for a share of the time.

    Args:
        stolen_s: how long the processor is taken away, once in every 0.1 s.
    """

    def __init__(
        self, service_s: float, *, queue: int = 64, max_wait_s: float | None = None, stolen_s: float = 0.0
    ) -> None:
        self.service_s, self.stolen_s = service_s, stolen_s
        self.now = 0.0
        self.admission = Admission("model", queue=queue, max_wait_s=max_wait_s, clock=lambda: self.now)
        self.step_times = StepTimes()
        self.ends: list[float] = []

    def ask(self, now: float) -> float | QueueFullError:
        """Return when a request is answered, or its refusal."""
        self.now = now
        self.ends = [end for end in self.ends if end > now]
        pending = len(self.ends)
        wait_s = self.step_times.wait_s(unprepared=0, threads=1, items=pending, runs=1)
        refusal = self.admission.refusal(max(0, pending - 1), int(not pending), wait_s, float("inf"), 10)
        if refusal is not None:
            return refusal
        start = max([now, *self.ends])
        end = self._end(start)
        self.step_times.ran(end - start, 1, end - start if self.ends else None)
        self.ends.append(end)
        return end

    def _end(self, start: float) -> float:
        """Return the wall-clock end of a run that begins at a time."""
        left, at = self.service_s, start
        while True:
            away_until = at // 0.1 * 0.1 + self.stolen_s
            at = max(at, away_until)
            free_s = at // 0.1 * 0.1 + 0.1 - at
            if left <= free_s + 1e-12:
                return at + left
            left, at = left - free_s, at + free_s + 1e-9


def clients(server: Server, count: int, seconds: float, *, again_s: float = 0.002) -> Seen:
    """Simulate clients that send the next request as soon as they are answered, and retry shortly after a refusal."""
    seen, events = Seen(), [(number * 1e-5, number) for number in range(count)]
    while events:
        now, number = heapq.heappop(events)
        if now > seconds:
            continue
        end = server.ask(now)
        if isinstance(end, QueueFullError):
            seen.refused.append((now, end))
            end = now + again_s
        else:
            seen.answered.append((end, end - now))
        heapq.heappush(events, (end, number))
    return seen


@pytest.mark.parametrize("service_s", [0.0002, 0.001, 0.05, 2.0])
@pytest.mark.parametrize("count", [1, 8, 24, FEW_REQUESTS + 2])
def test_a_few_who_ask_again_at_once_are_all_answered_however_long_that_goes_on(service_s: float, count: int) -> None:
    seen = clients(Server(service_s), count, 500 * service_s)
    assert not seen.refused and len(seen.answered) >= 500


@pytest.mark.parametrize("stolen_s", [0.05, 0.09, 0.099])
@pytest.mark.parametrize("count", [4, 8, 24])
def test_a_few_are_all_answered_where_the_processor_is_taken_away(count: int, stolen_s: float) -> None:
    assert not clients(Server(0.0002, stolen_s=stolen_s), count, 5.0).refused


def test_a_few_who_come_at_random_are_never_refused_whatever_runs_take() -> None:
    chance = random.Random(0)
    server = Server(0.0002)
    for _ in range(2000):
        server.service_s = chance.choice([0.0002, 0.01, 3.0])
        if len(server.ends) <= FEW_REQUESTS:
            assert isinstance(server.ask(server.now + chance.expovariate(10)), float)
        else:
            server.ends = server.ends[1:]


def test_a_burst_is_answered_as_long_as_no_request_waits_for_more_than_a_second() -> None:
    server = Server(0.01)
    server.ask(0.0)
    assert all(isinstance(server.ask(1.0), float) for _ in range(65))
    assert isinstance(server.ask(1.0), QueueFullError)  # as many wait as may
    slow = Server(0.1)
    slow.ask(0.0)
    assert sum(isinstance(slow.ask(1.0), float) for _ in range(65)) == FEW_REQUESTS + 2  # one runs


@pytest.mark.parametrize(
    ("service_s", "max_wait_s", "most_s"),
    [
        (0.001, None, 0.066),  # as many as may wait
        (0.03, None, DEFAULT_MAX_WAIT_S + 0.07),
        (0.5, None, (FEW_REQUESTS + 3) * 0.5),
        (0.03, 0.2, 0.27),
    ],
)
@pytest.mark.parametrize("count", [100, 260])  # a multiple of what can wait
def test_under_an_overload_the_model_stays_at_work_and_waiting_is_bounded(
    service_s: float, max_wait_s: float | None, most_s: float, count: int
) -> None:
    seconds = 300 * service_s
    seen = clients(Server(service_s, max_wait_s=max_wait_s), count, seconds, again_s=4 * service_s)
    assert seen.refused and len(seen.answered) >= 0.99 * seconds / service_s
    assert max(took for _, took in seen.answered) <= most_s


def refusal(*, pending: int = 50, wait_s: float = 1.5, left_s: float = 30.0) -> QueueFullError:
    made = Admission("model", queue=99, max_wait_s=None, clock=lambda: 0.0)
    found = made.refusal(pending - 1, 0, wait_s, left_s, 10)
    assert found is not None
    return found


def test_who_is_refused_is_told_the_wait_and_when_it_would_be_short_enough() -> None:
    found = refusal(wait_s=9.25)
    assert found.message == "'model' is busy: the request would wait about 9.25 seconds, expected at most 1"
    assert found.detail == {"wait_s": 9.25} and found.headers["Retry-After"] == "9"
    assert 8250 <= float(found.headers["Retry-After-Ms"]) <= 1.5 * 8250


@pytest.mark.parametrize("wait_s", [0.008, 0.5])
def test_a_short_time_is_told_with_its_fraction_and_others_are_told_others(wait_s: float) -> None:
    told = [refusal(pending=100, wait_s=wait_s).headers for _ in range(50)]
    times = [float(each["Retry-After-Ms"]) for each in told]
    assert {each["Retry-After"] for each in told} == {"1"}
    assert wait_s * 1e3 <= min(times) < 1.1 * wait_s * 1e3 and 1.4 * wait_s * 1e3 < max(times) <= 1.5 * wait_s * 1e3
    assert len(set(times)) > 40


def test_where_nothing_was_measured_only_whole_seconds_are_told() -> None:
    assert refusal(pending=100, wait_s=0.0).headers == {"Retry-After": "1"}
