"""One served model's requests: a bounded queue in order of priority and deadline, and the threads behind it.

A request is prepared in a thread, waits for its run, and is finished. A request that finds the run free goes through
all of it in one thread; else it waits in the one queue there is, and whoever ends a run wakes a thread for the next.
Requests that may share a run are run together with what waits when their turn comes.

Here is what the event loop asks; turns.py says what is next, and worker.py is what threads do with it.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from app.errors import ModelNotReadyError, ServiceError
from app.scheduling.admission import Admission, Pace
from app.scheduling.job import USUAL_PRIORITY, Demand, Job, Stage, Work
from app.scheduling.threads import Step, Threads
from app.scheduling.turns import Turns
from app.scheduling.worker import Worker
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
        queue=settings.max_queue,
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
        queue: requests that may wait, beside those that run.
        slow: runs beside these of shapes that there is no code for, so that they hold up no others.
        retry_after_s: the least that a refused client is told.
        max_wait_s: a request that would wait longer is refused; None for the usual limit (app/scheduling/admission.py).
    """

    def __init__(
        self,
        name: str,
        *,
        threads: int,
        runs: int,
        queue: int,
        slow: int = 0,
        retry_after_s: int = 1,
        max_wait_s: float | None = None,
    ) -> None:
        self.name = name
        self.runs = runs
        self._retry_after_s = retry_after_s
        self._admission = Admission(name, queue=queue, retry_after_s=retry_after_s, max_wait_s=max_wait_s)
        self._preparers = threads
        self._lock = threading.Lock()
        self._threads = Threads(f"lane-{name}", threads + runs + slow, self._lock, self._take)
        self.pace = Pace()
        self._turns = Turns(name, preparers=threads, runs=(runs, slow), look_again=self._look_again)
        self._worker = Worker(self._turns, self.pace, self._lock, self._threads.wake)
        self._number = 0
        self._ended: str | None = None

    # -- from the event loop -----------------------------------------------------------------------------------------

    def run_now(self, work: Work, deadline: float) -> tuple[Any] | None:
        """What the work's last step returns, all of it done here and now: None where that takes time, or others wait.

        For work that takes no time a thread, and the way there and back, takes longer.

        Raises:
            DeadlineExceededError: its time is up.
        """
        if not (self._turns.is_free and work.prepare_here() and self._claim()):
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

    def refusal(self, deadline: float, priority: int = USUAL_PRIORITY) -> ServiceError | None:
        """Return what a request would be refused with that comes now; None where it would be taken."""
        if self._ended is not None:
            return ModelNotReadyError(self._ended, retry_after_s=self._retry_after_s)
        return self._admission.refusal(self.queued, self._turns.idle, self._wait_s(), deadline, priority)

    @property
    def is_empty(self) -> bool:
        """Whether no request is there."""
        return self._turns.pending == 0

    @property
    def reasons(self) -> Counter[str]:
        """Why runs that could have been shared were as small as they were."""
        return self._turns.reasons

    def _wait_s(self) -> float:
        """Return how long a request that comes now would wait, about."""
        return self.pace.wait_s(
            unprepared=len(self._turns.arrived),
            threads=self._preparers,
            items=self._turns.ready.items + self._turns.items_in_runs,
            runs=self.runs,
        )

    @property
    def queued(self) -> int:
        """How many requests are there that do not run now."""
        return max(0, self._turns.pending - self._turns.in_runs)

    @property
    def waiting(self) -> int:
        """How many of them are prepared, and wait for a run."""
        return len(self._turns.ready) + len(self._turns.slow)

    @property
    def running(self) -> int:
        """How many requests run now."""
        return self._turns.in_runs

    @property
    def is_busy(self) -> bool:
        """Whether a thread is at work."""
        return self._turns.is_busy

    def retire(self) -> None:
        """Take no more; what runs and what waits goes on to its end."""
        with self._lock:
            self._ended = f"this version of '{self.name}' is no longer served"
            self._turns.is_closed = True
            self._threads.close()

    def close(self) -> None:
        """Drop what waits; what runs goes on to its end."""
        with self._lock:
            self._ended = "the server is stopping"
            self._turns.is_closed = True
            for job in self._turns.drain():
                job.settle(error=ModelNotReadyError(self._ended, retry_after_s=self._retry_after_s))
            self._threads.close()

    def _claim(self) -> bool:
        """Take the place of a run, if there is one."""
        with self._lock:
            if not self._turns.is_free:
                return False
            self._turns.count_one(1)
            return True

    def _release(self) -> None:
        with self._lock:
            self._turns.count_one(-1)
            if self._turns.ready or self._turns.arrived:
                self._threads.wake()

    def _run_here(self, work: Work, deadline: float) -> Any:
        if time.monotonic() > deadline:
            raise self._turns.too_late()
        start = time.perf_counter()
        work.run(_never)
        self.pace.ran(time.perf_counter() - start, 1)
        return work.finish(0.0)

    def _enter(self, work: Work, deadline: float, priority: int) -> Job:
        with self._lock:
            self.check(deadline, priority)
            self._number += 1
            job = Job(work, deadline, priority, self._number)
            self._turns.enter(job)
            try:
                if not (self.pace.is_quick and self._threads.busy):
                    self._threads.wake()
            except RuntimeError:  # the system has no more threads
                self._turns.drop(job)
                raise ModelNotReadyError("there are no threads", retry_after_s=self._retry_after_s) from None
        return job

    def _expire(self, job: Job) -> None:
        if not job.future.done():
            job.future.set_exception(self._turns.too_late())

    def _leave(self, job: Job) -> None:
        """Nobody waits for it any more."""
        job.ticket.abandon()
        with self._lock:
            if job.stage is Stage.WAITING:
                self._turns.drop(job)

    # -- from threads ------------------------------------------------------------------------------------------------

    def _take(self) -> Step | None:
        """What a thread should do next; called with the lock held."""
        return self._turns.next(self._worker)

    def _look_again(self) -> None:
        with self._lock:
            self._threads.wake()


def _never() -> bool:
    return False


class Errand:
    """A function's call as work."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._result: Any = None

    def prepare(self) -> Demand:
        """Nothing to prepare."""
        return Demand(items=0)

    def prepare_here(self) -> bool:
        """Nobody knows how long it takes."""
        return False

    def run(self, cancelled: Callable[[], bool]) -> None:
        """All of it; what it does asks by itself whether it is cancelled."""
        self._result = self._call()

    def run_with(self, others: Sequence[Any], cancelled: Callable[[], bool]) -> None:
        """Never: it has no group."""
        raise NotImplementedError

    def finish(self, queue_s: float) -> Any:
        """The result of the work."""
        return self._result
