"""Parallel loading: a load that hangs, fails or ends its thread does not affect the others."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from app.models.registry import loader_pool
from app.models.registry.loader_pool import Job, LoaderPool, LoadingStoppedError, Stop
from tests.patience import PATIENCE_S


@pytest.fixture(autouse=True)
def long_loading_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the limit of loading time, so that a busy machine does not fail tests."""
    monkeypatch.setattr(loader_pool, "PATIENCE_S", 3600.0)


class Work:
    """Job that waits until it is released and ignores cancellation."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.may_end = threading.Event()
        self.given_up = threading.Event()

    def __call__(self, stop: Stop) -> None:
        self.began.set()
        assert self.may_end.wait(PATIENCE_S)

    def job(self, limit_s: float = PATIENCE_S) -> Job:
        return Job("stuck", self, self.given_up.set, Stop(limit_s))


@pytest.fixture
def stuck() -> Iterator[list[Work]]:
    works = [Work() for _ in range(3)]
    yield works
    for work in works:
        work.may_end.set()


def ends(work: Callable[[Stop], None]) -> tuple[Job, threading.Event]:
    done = threading.Event()

    def run(stop: Stop) -> None:
        try:
            work(stop)
        finally:
            done.set()

    return Job("good", run, lambda: None, Stop(PATIENCE_S)), done


def test_no_more_run_at_once_than_the_crew_has_hands(stuck: list[Work]) -> None:
    hands = LoaderPool(2)
    for work in stuck:
        hands.submit(work.job())
    assert all(work.began.wait(PATIENCE_S) for work in stuck[:2])
    assert not stuck[2].began.wait(0.05)
    stuck[0].may_end.set()
    assert stuck[2].began.wait(PATIENCE_S)


def test_one_that_takes_long_gives_its_place_to_the_next(stuck: list[Work], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader_pool, "PATIENCE_S", 0.01)
    hands = LoaderPool(1)
    for work in stuck:
        hands.submit(work.job())
    assert all(work.began.wait(PATIENCE_S) for work in stuck)


def test_one_whose_time_is_up_is_given_up_and_the_rest_go_on(stuck: list[Work]) -> None:
    hands = LoaderPool(1)
    for work in stuck:
        hands.submit(work.job(0.02))
    good, done = ends(lambda stop: None)
    hands.submit(good)
    assert done.wait(PATIENCE_S) and all(work.given_up.is_set() for work in stuck)
    hands.wait()
    assert hands.is_busy
    for work in stuck:
        work.may_end.set()


@pytest.mark.parametrize("exception", [ValueError, MemoryError, RecursionError, SystemExit, KeyboardInterrupt])
def test_whatever_a_job_raises_the_next_one_runs(
    exception: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def fail(stop: Stop) -> None:
        raise exception

    hands = LoaderPool(1)
    hands.submit(ends(fail)[0])
    good, done = ends(lambda stop: None)
    hands.submit(good)
    assert done.wait(PATIENCE_S)
    hands.wait()
    assert not hands.is_busy and exception.__name__ in caplog.text


def test_the_thread_that_watches_ends_and_begins_with_the_jobs() -> None:
    hands = LoaderPool(2)
    for _ in range(3):
        good, done = ends(lambda stop: None)
        hands.submit(good)
        hands.wait()
        assert done.is_set()


def test_a_closed_crew_asks_what_runs_to_stop_and_begins_nothing(stuck: list[Work]) -> None:
    heeded = threading.Event()
    began = threading.Event()

    def heed(stop: Stop) -> None:
        began.set()
        while not stop.is_cancelled():
            heeded.wait(0.005)
        with pytest.raises(LoadingStoppedError):
            stop.check()
        heeded.set()

    hands = LoaderPool(1)
    hands.submit(ends(heed)[0])
    hands.submit(stuck[0].job())
    assert began.wait(PATIENCE_S)
    hands.close()
    hands.submit(stuck[1].job())
    assert heeded.wait(PATIENCE_S)
    hands.wait()
    assert not stuck[0].began.is_set() and not stuck[1].began.is_set()


def test_one_that_computes_for_ever_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader_pool, "GRACE_S", 0.01)
    turns = [0]

    def compute(stop: Stop) -> None:
        while True:
            with contextlib.suppress(Exception):
                turns[0] += 1

    hands, given_up = LoaderPool(1), threading.Event()
    hands.submit(Job("endless", compute, given_up.set, Stop(0.05)))
    hands.wait()
    assert given_up.is_set()
    end = time.monotonic() + PATIENCE_S
    while hands.is_busy:
        assert time.monotonic() < end
        time.sleep(0.01)


def heavy(work: Work, needs_bytes: int, limit_s: float = PATIENCE_S) -> Job:
    job = work.job(limit_s)
    job.needs_bytes = needs_bytes
    return job


def test_jobs_that_fit_alone_but_not_together_run_one_after_the_other(stuck: list[Work]) -> None:
    hands = LoaderPool(3, lambda: 100)
    for work in stuck:
        hands.submit(heavy(work, 60))
    for work, later in zip(stuck, [*stuck[1:], None], strict=True):
        assert work.began.wait(PATIENCE_S)
        assert later is None or not later.began.wait(0.05)
        work.may_end.set()
    hands.wait()


def test_jobs_that_fit_together_run_at_once(stuck: list[Work]) -> None:
    hands = LoaderPool(3, lambda: 100)
    for work in stuck:
        hands.submit(heavy(work, 33))
    assert all(work.began.wait(PATIENCE_S) for work in stuck)


def test_a_job_that_never_fits_runs_alone_and_smaller_ones_need_not_wait_for_it(stuck: list[Work]) -> None:
    first, vast, small = stuck
    hands = LoaderPool(3, lambda: 100)
    hands.submit(heavy(first, 10))
    assert first.began.wait(PATIENCE_S)
    hands.submit(heavy(vast, 10**6))
    hands.submit(heavy(small, 20))
    assert small.began.wait(PATIENCE_S)
    assert not vast.began.wait(0.05)
    first.may_end.set()
    small.may_end.set()
    assert vast.began.wait(PATIENCE_S)


def test_one_that_is_given_up_makes_room_for_those_that_wait_for_memory(stuck: list[Work]) -> None:
    hands = LoaderPool(3, lambda: 100)
    hands.submit(heavy(stuck[0], 90, 0.2))
    hands.submit(heavy(stuck[1], 90))
    assert stuck[0].given_up.wait(PATIENCE_S)
    assert stuck[1].began.wait(PATIENCE_S)


def test_an_early_job_waits_although_nothing_runs() -> None:
    pool, ended, is_early = LoaderPool(1), threading.Event(), [True]
    pool.submit(Job("early", lambda _: ended.set(), lambda: None, Stop(60.0), is_early=lambda: is_early[0]))
    pool.submit(Job("other", lambda _: None, lambda: None, Stop(60.0)))
    assert not ended.wait(0.2)
    is_early[0] = False
    assert ended.wait(10.0)
    pool.wait()
