"""What a model's threads do with a request, one step after the other: prepare it, run it, make its answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import engine
from app.scheduling.admission import Pace
from app.scheduling.job import Demand, Job, Stage, Work
from app.scheduling.turns import Turns, items_of

# Answers that take longer are made while the next run goes on; for others a thread costs more.
_LONG_S: Final = 0.0005


class Worker:
    """Does the steps, in whichever thread.

    Args:
        lock: held where turns are asked or told.
        pace: told what each step took.
        wake: called, with the lock held, when there is something for another thread.
    """

    def __init__(self, turns: Turns, pace: Pace, lock: threading.Lock, wake: Callable[[], None]) -> None:
        self._turns = turns
        self._pace = pace
        self._lock = lock
        self._wake = wake

    def prepare(self, job: Job, work: Work) -> None:
        """Make a request ready to run; it waits for its run then, or is finished where it needs none."""
        start = time.perf_counter()
        demand: Demand | None = None
        error: BaseException | None = None
        try:
            demand = job.do(work.prepare)
        except BaseException as exc:
            error = self._told(job, exc)
        with self._lock:
            self._turns.preparing -= 1
            self._pace.prepare_s.add(time.perf_counter() - start)
            if error is not None or job.ticket.is_void():
                self._turns.over(job)
            elif demand is not None:
                if demand.items:
                    self._pace.items.add(demand.items)
                job.demand = demand
                self._turns.wait(job)
                return  # this thread takes it, if the run is free
        if error is not None or job.stage is Stage.OVER:
            job.settle(error=error or self._turns.too_late())
        else:
            self.finish(job, job.queue_s)

    def run(self, jobs: list[Job], kind: int) -> None:
        """Compute requests, together where they are several, and make the first answer."""
        turns, start = self._turns, time.perf_counter()
        failed = self._compute(jobs)
        now = time.perf_counter()
        with self._lock:
            turns.end_run(jobs, kind)
            if not kind:
                if not failed:
                    self._pace.ran(now - start, items_of(jobs), None if turns.began is None else now - turns.began)
                turns.began = now if turns.ready or turns.arrived else None
            for job in failed:
                self._turns.over(job)
            done = [job for job in jobs if job not in failed]
            is_long = len(done) > 1 and (self._pace.finish_s.value or 0.0) > _LONG_S
            first, rest = (done[:1], done[1:]) if is_long else (done, [])
            turns.to_finish.extend((job, job.queue_s) for job in rest)
            # A thread that is woken costs more than a short answer, which this one makes before it looks for more.
            if not self._pace.is_quick and (turns.ready or turns.slow or turns.arrived):
                self._wake()
            for _ in rest:
                self._wake()
        for job, error in failed.items():
            job.settle(error=error)
        for job in first:
            self.finish(job, job.queue_s)

    def _compute(self, jobs: list[Job]) -> dict[Job, BaseException]:
        """Run them, together if they are several; the errors of those that failed."""
        if len(jobs) > 1 and self._compute_together(jobs):
            return {}
        failed: dict[Job, BaseException] = {}
        for job in jobs:
            if job.ticket.is_void():
                failed[job] = self._turns.too_late()
                continue
            try:
                assert job.work is not None
                job.do(partial(job.work.run, job.ticket.is_void))
            except BaseException as exc:
                failed[job] = self._told(job, exc)
        return failed

    def _told(self, job: Job, error: BaseException) -> BaseException:
        """What a request fails with: that its time was up, and not where the work stopped because of that."""
        is_late = isinstance(error, engine.RunCancelledError) and job.ticket.is_void()
        return self._turns.too_late() if is_late else error

    def _compute_together(self, jobs: list[Job]) -> bool:
        """Whether they have run as one: one that fails must not harm the others."""

        def is_void() -> bool:
            return all(job.ticket.is_void() for job in jobs)

        works = [job.work for job in jobs if job.work is not None]
        try:
            jobs[0].do(partial(works[0].run_with, works[1:], is_void), is_void)
        except BaseException:
            return False
        return True

    def finish(self, job: Job, queue_s: float) -> None:
        """Make an answer, and let who waits for it know."""
        result: Any = None
        error: BaseException | None = None
        start = time.perf_counter()
        try:
            assert job.work is not None
            if job.ticket.is_void():  # the loop may not have said so yet to whoever waits
                raise self._turns.too_late()
            result = job.do(partial(job.work.finish, queue_s))
        except BaseException as exc:
            error = self._told(job, exc)
        with self._lock:
            self._pace.finish_s.add(time.perf_counter() - start)
            self._turns.over(job)
        job.settle(result, error)
