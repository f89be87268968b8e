"""Scheduler of one served model: a bounded queue in order of priority and deadline, and the threads behind it.

A request is prepared in a thread, waits for its run, and is finished. If the model is idle, one thread does all of it;
otherwise the request waits in the only queue there is, and the thread that ends a run takes the next one. Requests
that may share a run are run together with what waits when the run begins.

This module holds what the event loop calls; ``run_queue`` chooses the next step, ``worker`` executes it.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from app.errors import ModelNotReadyError, ServiceError
from app.scheduling.admission import Admission, StepTimes
from app.scheduling.job import DEFAULT_PRIORITY, Job, RunSpec, Stage, Work
from app.scheduling.run_queue import RunQueue, Step
from app.scheduling.threads import Threads
from app.scheduling.worker import Worker
from app.settings import Settings

T = TypeVar("T")


def make_scheduler(name: str, settings: Settings, threads: int) -> Scheduler:
    """Return the scheduler of a model.

    Compiled code uses all threads in one run, so one run at a time has the throughput of several and the shortest
    latency. The reference backend leaves threads idle, so it gets as many runs as threads.

    Args:
        name: the model.
        settings: limits, backend and waiting times.
        threads: threads that this process may use.
    """
    runs = settings.max_in_flight or (threads if settings.backend == "reference" else 1)
    has_slow = settings.max_in_flight is None and settings.backend != "reference"
    return Scheduler(
        name,
        threads=threads,
        runs=runs,
        queue=settings.max_queue,
        slow=int(has_slow),
        max_wait_s=settings.max_wait_s,
    )


class Scheduler:
    """Scheduler of one model's requests.

    Args:
        name: the model, for messages and thread names.
        threads: requests that are prepared at a time.
        runs: runs at a time.
        queue: requests that may wait, in addition to those that run.
        slow: additional runs for shapes that are not compiled, so that these do not delay others.
        max_wait_s: a request that would wait longer is refused; None for the default limit (see admission.py).
    """

    def __init__(
        self,
        name: str,
        *,
        threads: int,
        runs: int,
        queue: int,
        slow: int = 0,
        max_wait_s: float | None = None,
    ) -> None:
        self.name = name
        self.runs = runs
        self._admission = Admission(name, queue=queue, max_wait_s=max_wait_s)
        self._preparers = threads
        self._lock = threading.Lock()
        self._threads = Threads(f"scheduler-{name}", threads + runs + slow, self._lock, self._take)
        self.step_times = StepTimes()
        self._run_queue = RunQueue(name, preparers=threads, runs=(runs, slow), recheck=self._recheck)
        self._worker = Worker(self._run_queue, self.step_times, self._lock, self._threads.wake)
        self._number = 0
        self._ended: str | None = None

    # -- from the event loop -----------------------------------------------------------------------------------------

    def run_now(self, work: Work, deadline: float) -> tuple[Any] | None:
        """Do quick work on the event loop and return its result in a tuple, or None if it must be scheduled.

        For quick work, handing it to a thread and back would take longer than the work.

        Raises:
            DeadlineExceededError: the deadline has passed.
        """
        if not (self._run_queue.is_free and work.prepare_here() and self._claim()):
            return None
        try:
            return (self._run_here(work, deadline),)
        finally:
            self._release()

    async def run(self, work: Work, deadline: float, priority: int = DEFAULT_PRIORITY) -> Any:
        """Return the result of the work's last step.

        Args:
            work: done in threads, with the caller's context variables.
            deadline: on time.monotonic()'s clock; waiting counts.
            priority: 1 comes first.

        Raises:
            QueueFullError: refused; nothing was started.
            DeadlineExceededError: not done in time; no further step is started.
            ModelNotReadyError: the scheduler is closed.
        """
        job = self._enter(work, deadline, priority)
        timer = job.loop.call_later(max(0.0, deadline - time.monotonic()), self._expire, job)
        try:
            return await job.future
        finally:
            timer.cancel()
            self._leave(job)

    async def call(self, work: Callable[[], T], deadline: float) -> T:
        """Return the result of other work that runs the model; it waits as requests do."""
        result: T = await self.run(FunctionWork(work), deadline)
        return result

    def check(self, deadline: float, priority: int = DEFAULT_PRIORITY) -> None:
        """Raise now what ``run`` would raise at once.

        Raises:
            QueueFullError, ModelNotReadyError: as in ``run``.
        """
        error = self.refusal(deadline, priority)
        try:
            if error is not None:
                raise error
        finally:
            del error  # its traceback refers to this

    def refusal(self, deadline: float, priority: int = DEFAULT_PRIORITY) -> ServiceError | None:
        """Return the error that a request arriving now would get, or None."""
        if self._ended is not None:
            return ModelNotReadyError(self._ended)
        return self._admission.refusal(self.queued, self._run_queue.idle, self._wait_s(), deadline, priority)

    @property
    def is_empty(self) -> bool:
        """Return whether there is no request."""
        return self._run_queue.pending == 0

    @property
    def reasons(self) -> Counter[str]:
        """Return counts of why batches were not larger."""
        return self._run_queue.reasons

    def _wait_s(self) -> float:
        """Return the expected wait of a request that arrives now."""
        return self.step_times.wait_s(
            unprepared=len(self._run_queue.arrived),
            threads=self._preparers,
            items=self._run_queue.ready.items + self._run_queue.items_in_runs,
            runs=self.runs,
        )

    @property
    def queued(self) -> int:
        """Return the number of requests that are not running."""
        return max(0, self._run_queue.pending - self._run_queue.in_runs)

    @property
    def waiting(self) -> int:
        """Return the number of prepared requests that wait for a run."""
        return len(self._run_queue.ready) + len(self._run_queue.slow)

    @property
    def running(self) -> int:
        """Return the number of requests that are running."""
        return self._run_queue.in_runs

    @property
    def is_busy(self) -> bool:
        """Return whether a thread is working."""
        return self._run_queue.is_busy

    def retire(self) -> None:
        """Refuse new requests; those that wait or run are completed."""
        with self._lock:
            self._ended = f"this version of '{self.name}' is no longer served"
            self._run_queue.is_closed = True
            self._threads.close()

    def close(self) -> None:
        """Refuse new requests and drop those that wait; those that run are completed."""
        with self._lock:
            self._ended = "the server is stopping"
            self._run_queue.is_closed = True
            for job in self._run_queue.drain():
                job.resolve(error=ModelNotReadyError(self._ended))
            self._threads.close()

    def _claim(self) -> bool:
        """Begin a run if nothing waits."""
        with self._lock:
            if not self._run_queue.is_free:
                return False
            self._run_queue.count_one(1)
            return True

    def _release(self) -> None:
        with self._lock:
            self._run_queue.count_one(-1)
            if self._run_queue.ready or self._run_queue.arrived:
                self._threads.wake()

    def _run_here(self, work: Work, deadline: float) -> Any:
        if time.monotonic() > deadline:
            raise self._run_queue.deadline_error()
        start = time.perf_counter()
        work.run(None)
        self.step_times.ran(time.perf_counter() - start, 1)
        return work.finish(0.0)

    def _enter(self, work: Work, deadline: float, priority: int) -> Job:
        with self._lock:
            self.check(deadline, priority)
            self._number += 1
            job = Job(work, deadline, priority, self._number)
            self._run_queue.enter(job)
            try:
                if not (self.step_times.is_quick and self._threads.busy):
                    self._threads.wake()
            except RuntimeError:  # the system has no more threads
                self._run_queue.drop(job)
                message = f"'{self.name}': the system cannot start another thread"
                raise ModelNotReadyError(message) from None
        return job

    def _expire(self, job: Job) -> None:
        if not job.future.done():
            job.future.set_exception(self._run_queue.deadline_error())

    def _leave(self, job: Job) -> None:
        """Cancel a job whose client no longer waits."""
        job.token.cancel()
        with self._lock:
            if job.stage is Stage.WAITING:
                self._run_queue.drop(job)

    # -- from threads ------------------------------------------------------------------------------------------------

    def _take(self) -> Step | None:
        """Return the next step of a thread; called with the lock held."""
        return self._run_queue.next(self._worker)

    def _recheck(self) -> None:
        with self._lock:
            self._threads.wake()


class FunctionWork:
    """A function call as work."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._result: Any = None

    def prepare(self) -> RunSpec:
        """Return an empty run spec; there is nothing to prepare."""
        return RunSpec(items=0)

    def prepare_here(self) -> bool:
        """Return False, since the duration is unknown."""
        return False

    def run(self, cancelled: Callable[[], bool] | None) -> None:
        """Call the function, which checks by itself whether it is cancelled."""
        self._result = self._call()

    def run_with(self, others: Sequence[Any], cancelled: Callable[[], bool]) -> None:
        """Raise, since a function has no group."""
        raise NotImplementedError

    def finish(self, queue_s: float) -> Any:
        """Return the function's result."""
        return self._result
