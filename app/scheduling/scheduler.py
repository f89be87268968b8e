"""One served model's requests: a bounded queue in order of priority and deadline, and the threads behind it.

A request is prepared in a thread, waits for its run, and is finished. A request that finds the run free goes through
all of it in one thread; else it waits in the one queue there is, and whoever ends a run wakes a thread for the next.
Requests that may share a run are run together with what waits when their turn comes.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from app.errors import DeadlineExceededError, ModelNotReadyError, ServiceError
from app.scheduling.admission import Admission
from app.scheduling.errand import Errand
from app.scheduling.job import USUAL_PRIORITY, Demand, Job, Stage, Work
from app.scheduling.pace import Pace
from app.scheduling.share import ALONE, FULL, OTHERS, choose
from app.scheduling.threads import Step, Threads
from app.scheduling.waiting import Waiting
from app.settings import Settings

T = TypeVar("T")

# Answers that take longer are made while the next run goes on; for others a thread costs more.
_LONG_S: Final = 0.0005


def make_scheduler(name: str, settings: Settings, threads: int) -> Scheduler:
    """A model's, as the settings want it.

    Machine code runs on all threads at once, so that one run after the other is as fast as several, and each is over
    sooner. The reference leaves threads idle.

    Args:
        threads: that this process may use.
    """
    runs = settings.max_in_flight or (threads if settings.backend == "reference" else 1)
    has_slow = settings.max_in_flight is None and settings.backend != "reference"
    return Scheduler(
        name,
        threads=threads,
        runs=runs,
        places=(settings.max_in_flight or threads) + settings.max_queue,
        slow=int(has_slow),
        retry_after_s=settings.retry_after_s,
        max_wait_s=settings.max_wait_s,
    )


class Scheduler:
    """Takes requests through a model.

    Args:
        name: whose requests, for messages and thread names.
        threads: requests that are prepared at once.
        runs: runs that go on at once.
        places: requests that may be there at once, whatever they do.
        slow: runs beside these of shapes that there is no code for, so that they hold up no others.
        retry_after_s: the least that a refused client is told.
        max_wait_s: a request that would wait longer is refused; None where bursts may wait, and a lasting queue is kept
            short (app/scheduling/pressure.py).
    """

    def __init__(
        self,
        name: str,
        *,
        threads: int,
        runs: int,
        places: int,
        slow: int = 0,
        retry_after_s: int = 1,
        max_wait_s: float | None = None,
    ) -> None:
        self.name = name
        self.runs = runs
        self._retry_after_s = retry_after_s
        self._admission = Admission(name, places=places, retry_after_s=retry_after_s, max_wait_s=max_wait_s)
        self._preparers = threads
        self._slow_runs = slow
        self._lock = threading.Lock()
        self._threads = Threads(f"lane-{name}", threads + runs + slow, self._lock, self._take)
        self._number = 0
        self._pending = 0
        self._preparing = 0
        self._running = [0, 0]  # runs: usual ones, slow ones
        # When a run ended, where the next one could begin at once.
        self._turn_began: float | None = None
        self._in_runs = 0
        self._items_in_runs = 0
        self._arrived, self._ready, self._slow = Waiting(), Waiting(), Waiting()
        self._to_finish: deque[tuple[Job, float]] = deque()
        self._ended: str | None = None
        self.pace = Pace()
        # Why runs that could have been shared were as small as they were.
        self.reasons: Counter[str] = Counter()

    # -- from the event loop -----------------------------------------------------------------------------------------

    def run_now(self, work: Work, deadline: float) -> tuple[Any] | None:
        """What the work's last step returns, all of it done here and now: None where that takes time, or others wait.

        For work that takes no time a thread, and the way there and back, takes longer.

        Raises:
            DeadlineExceededError: its time is up.
        """
        if not (self._is_free and work.prepare_here() and self._claim()):
            return None
        try:
            return (self._run_here(work, deadline),)
        finally:
            self._release()

    async def run(self, work: Work, deadline: float, priority: int = USUAL_PRIORITY) -> Any:
        """What the work's last step returns.

        Args:
            work: done in threads, with the caller's context variables.
            deadline: on time.monotonic()'s clock; waiting counts.
            priority: 1 comes first.

        Raises:
            QueueFullError: nothing was started.
            DeadlineExceededError: not done in time; a step that has not begun never will.
            ModelNotReadyError: it is closed.
        """
        job = self._enter(work, deadline, priority)
        timer = job.loop.call_later(max(0.0, deadline - time.monotonic()), self._expire, job)
        try:
            return await job.future
        finally:
            timer.cancel()
            self._leave(job)

    async def call(self, work: Callable[[], T], deadline: float) -> T:
        """What some other work returns that runs the model; it waits as requests do."""
        result: T = await self.run(Errand(work), deadline)
        return result

    def check(self, deadline: float, priority: int = USUAL_PRIORITY) -> None:
        """Refuse early what would be refused anyway.

        Raises:
            QueueFullError, ModelNotReadyError: as ``run`` says.
        """
        error = self.refusal(deadline, priority)
        try:
            if error is not None:
                raise error
        finally:
            del error  # its traceback refers to this

    def refusal(
        self,
        deadline: float,
        priority: int = USUAL_PRIORITY,
        *,
        ahead: int = 0,
        ahead_s: float = 0.0,
        is_behind: bool = False,
    ) -> ServiceError | None:
        """What a request would be refused with that comes now; None where it would be taken.

        Args:
            ahead: requests that come before it and have yet to ask.
            ahead_s: what it waits for before it asks itself.
            is_behind: whether others that come while more come than can be answered are let in before it.
        """
        if self._ended is not None:
            return ModelNotReadyError(self._ended, retry_after_s=self._retry_after_s)
        wait_s, marks = ahead_s + self._wait_s(ahead), self.pace.marks(self.runs)
        return self._admission.refusal(self._pending + ahead, wait_s, marks, deadline, priority, is_behind=is_behind)

    @property
    def is_empty(self) -> bool:
        """Whether no request is there."""
        return self._pending == 0

    def _wait_s(self, ahead: int) -> float:
        """How long a request would wait, about, that comes behind so many more."""
        return self.pace.wait_s(
            unprepared=len(self._arrived) + ahead,
            threads=self._preparers,
            items=self._ready.items + self._items_in_runs,
            runs=self.runs,
        )

    @property
    def queued(self) -> int:
        """How many requests are there that do not run now."""
        return max(0, self._pending - self._in_runs)

    @property
    def waiting(self) -> int:
        """How many of them are prepared, and wait for a run."""
        return len(self._ready) + len(self._slow)

    @property
    def running(self) -> int:
        """How many requests run now."""
        return self._in_runs

    @property
    def is_busy(self) -> bool:
        """Whether a thread is at work."""
        return self._preparing > 0 or any(self._running) or bool(self._to_finish)

    def retire(self) -> None:
        """Take no more; what runs and what waits goes on to its end."""
        with self._lock:
            self._ended = f"this version of '{self.name}' is no longer served"
            self._threads.close()

    def close(self) -> None:
        """Drop what waits; what runs goes on to its end."""
        with self._lock:
            self._ended = "the server is stopping"
            for job in (*self._arrived.drain(), *self._ready.drain(), *self._slow.drain()):
                self._over(job)
                job.settle(error=ModelNotReadyError(self._ended, retry_after_s=self._retry_after_s))
            self._threads.close()

    @property
    def _is_free(self) -> bool:
        """Whether nobody waits, and one more may run."""
        return not (self._ready or self._arrived) and self._running[0] < self.runs and self._ended is None

    def _claim(self) -> bool:
        """Take the place of a run, if there is one."""
        with self._lock:
            if not self._is_free or not self._admission.has_place(self._pending):
                return False
            self._pending += 1
            self._running[0] += 1
            self._in_runs += 1
            self._items_in_runs += 1
            return True

    def _release(self) -> None:
        with self._lock:
            self._pending -= 1
            self._running[0] -= 1
            self._in_runs -= 1
            self._items_in_runs -= 1
            if self._ready or self._arrived:
                self._threads.wake()

    def _run_here(self, work: Work, deadline: float) -> Any:
        if time.monotonic() > deadline:
            raise self._too_late()
        start = time.perf_counter()
        work.run(_never)
        self.pace.ran(time.perf_counter() - start, 1)
        return work.finish(0.0)

    def _enter(self, work: Work, deadline: float, priority: int) -> Job:
        with self._lock:
            self.check(deadline, priority)
            self._number += 1
            job = Job(work, deadline, priority, self._number)
            self._arrived.push(job)
            self._pending += 1
            try:
                if not (self.pace.is_quick and self._threads.busy):
                    self._threads.wake()
            except RuntimeError:  # the system has no more threads
                self._drop(job)
                raise ModelNotReadyError("there are no threads", retry_after_s=self._retry_after_s) from None
        return job

    def _expire(self, job: Job) -> None:
        if not job.future.done():
            job.future.set_exception(self._too_late())

    def _leave(self, job: Job) -> None:
        """Nobody waits for it any more."""
        job.ticket.abandon()
        with self._lock:
            if job.stage is Stage.WAITING:
                self._drop(job)

    def _too_late(self) -> DeadlineExceededError:
        return DeadlineExceededError(f"'{self.name}' did not answer within the request's time")

    # -- with the lock held ------------------------------------------------------------------------------------------

    def _queue_of(self, job: Job) -> Waiting:
        if job.demand is None:
            return self._arrived
        return self._slow if job.demand.is_slow and self._slow_runs else self._ready

    def _drop(self, job: Job) -> None:
        """One that waits, out of its turn."""
        queue = self._queue_of(job)
        self._over(job)
        queue.took(job)

    def _over(self, job: Job) -> None:
        if job.stage is not Stage.OVER:
            job.end()
            self._pending -= 1

    def _take(self) -> Step | None:
        """What a thread should do next: what is nearly done comes first."""
        if self._to_finish:
            return partial(self._finish, *self._to_finish.popleft())
        if self._running[0] < self.runs and self._ready:
            jobs = self._next_run()
            if jobs:
                return partial(self._run, jobs, 0)
        if self._running[1] < self._slow_runs and (job := self._next(self._slow)) is not None:
            self._begin_run([job], 1)
            return partial(self._run, [job], 1)
        if self._preparing < self._preparers and (job := self._next(self._arrived)) is not None:
            self._preparing += 1
            return partial(self._prepare, job, job.begin())
        if not (self._ready or self._arrived or self._preparing):
            self._turn_began = None  # whoever waited for the next turn has left
        return None

    def _next(self, queue: Waiting) -> Job | None:
        """The next one that is still wanted."""
        while (job := queue.pop()) is not None:
            if not job.ticket.is_void():
                return job
            self._over(job)
            job.settle(error=self._too_late())
        return None

    def _next_run(self) -> list[Job]:
        """The next one and those that share its run; none where all have still time to wait for more."""
        put_off: list[Job] = []
        try:
            while (job := self._next(self._ready)) is not None:
                is_known = any(_is_same_group(job, each) for each in put_off)
                jobs = [] if is_known else self._together(job)
                if jobs:
                    return jobs
                put_off.append(job)
            return []
        finally:
            for job in put_off:
                self._ready.push(job)

    def _together(self, job: Job) -> list[Job]:
        """Those that share a job's run, about to begin; none where it has time to wait for more."""
        jobs, batches = [job], None if job.demand is None else job.demand.batches
        if job.demand is not None and batches is not None:
            jobs, reason = choose(job, self._ready.of_group(job.demand.group), batches.sizes)
            left_s = batches.delay_s - (time.perf_counter() - job.since)
            if left_s > 0 and reason != FULL and self._ended is None:
                with suppress(RuntimeError):  # the loop is closed
                    job.loop.call_soon_threadsafe(job.loop.call_later, left_s, self._look_again)
                return []
            self.reasons[OTHERS if reason == ALONE and self._ready else reason] += 1
        self._begin_run(jobs, 0)
        for other in jobs[1:]:
            self._ready.took(other)
        return jobs

    def _begin_run(self, jobs: list[Job], kind: int) -> None:
        for job in jobs:
            job.begin()
        self._running[kind] += 1
        self._in_runs += len(jobs)
        self._items_in_runs += 0 if kind else _items(jobs)

    def _end_run(self, jobs: list[Job], kind: int) -> None:
        self._running[kind] -= 1
        self._in_runs -= len(jobs)
        self._items_in_runs -= 0 if kind else _items(jobs)

    # -- in a thread -------------------------------------------------------------------------------------------------

    def _look_again(self) -> None:
        with self._lock:
            self._threads.wake()

    def _prepare(self, job: Job, work: Work) -> None:
        start = time.perf_counter()
        demand: Demand | None = None
        error: BaseException | None = None
        try:
            demand = job.do(work.prepare)
        except BaseException as exc:
            error = exc
        with self._lock:
            self._preparing -= 1
            self.pace.prepare_s.add(time.perf_counter() - start)
            if error is not None or job.ticket.is_void():
                self._over(job)
            elif demand is not None:
                if demand.items:
                    self.pace.items.add(demand.items)
                job.demand = demand
                job.wait()
                self._queue_of(job).push(job)
                return  # this thread takes it, if the run is free
        if error is not None or job.stage is Stage.OVER:
            job.settle(error=error or self._too_late())
        else:
            self._finish(job, job.queue_s)

    def _run(self, jobs: list[Job], kind: int) -> None:
        start = time.perf_counter()
        failed = self._compute(jobs)
        now = time.perf_counter()
        with self._lock:
            self._end_run(jobs, kind)
            if not kind:
                if not failed:
                    self.pace.ran(
                        now - start, _items(jobs), None if self._turn_began is None else now - self._turn_began
                    )
                self._turn_began = now if self._ready or self._arrived else None
            for job in failed:
                self._over(job)
            done = [job for job in jobs if job not in failed]
            is_long = len(done) > 1 and (self.pace.finish_s.value or 0.0) > _LONG_S
            first, rest = (done[:1], done[1:]) if is_long else (done, [])
            self._to_finish.extend((job, job.queue_s) for job in rest)
            # A thread that is woken costs more than a short answer, which this one makes before it looks for more.
            if not self.pace.is_quick and (self._ready or self._slow or self._arrived):
                self._threads.wake()
            for _ in rest:
                self._threads.wake()
        for job, error in failed.items():
            job.settle(error=error)
        for job in first:
            self._finish(job, job.queue_s)

    def _compute(self, jobs: list[Job]) -> dict[Job, BaseException]:
        """Run them, together if they are several; the errors of those that failed."""
        if len(jobs) > 1 and self._compute_together(jobs):
            return {}
        failed: dict[Job, BaseException] = {}
        for job in jobs:
            if job.ticket.is_void():
                failed[job] = self._too_late()
                continue
            try:
                assert job.work is not None
                job.do(partial(job.work.run, job.ticket.is_void))
            except BaseException as exc:
                failed[job] = exc
        return failed

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

    def _finish(self, job: Job, queue_s: float) -> None:
        result: Any = None
        error: BaseException | None = None
        start = time.perf_counter()
        try:
            assert job.work is not None
            result = None if job.ticket.is_void() else job.do(partial(job.work.finish, queue_s))
        except BaseException as exc:
            error = exc
        with self._lock:
            self.pace.finish_s.add(time.perf_counter() - start)
            self._over(job)
        job.settle(result, error)


def _never() -> bool:
    return False


def _is_same_group(one: Job, other: Job) -> bool:
    return one.demand is not None and other.demand is not None and one.demand.group == other.demand.group


def _items(jobs: list[Job]) -> int:
    return sum(1 if job.demand is None else job.demand.items for job in jobs)
