"""Queues of one model's jobs: what waits, what runs and what a thread does next.

A job is prepared, waits for its run, and is finished. ``RunQueue`` executes nothing: a thread that has done a step of
``worker.Worker`` asks it for the ``next`` one. All of its methods are called with the scheduler's lock held.
"""

from __future__ import annotations

import bisect
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from app.errors import DeadlineExceededError
from app.scheduling.job import Job, Stage

if TYPE_CHECKING:
    from app.scheduling.worker import Worker

Step: TypeAlias = Callable[[], None]
# Kinds of runs: compiled shapes, and shapes that are not compiled.
USUAL: Final = 0
SLOW: Final = 1
# Why a batch has no more requests: it is full, no more of its group waited, none did, or only other groups did.
FULL: Final = "full"
FEW: Final = "few"
ALONE: Final = "alone"
OTHERS: Final = "others"


class RunQueue:
    """Waiting and running jobs of one model.

    Args:
        name: the model, for messages.
        preparers: requests that are prepared at a time.
        runs: usual runs and slow runs at a time.
        recheck: called on a job's loop when its time to wait for others is up.

    Attributes:
        pending: jobs that are not over.
        began: when a run ended, if the next one could begin at once; else None.
        in_runs: jobs that are running; items_in_runs counts their items without those of slow runs.
        to_finish: jobs that have run, and how long each has waited.
        is_closed: whether no more jobs come, so that a batch does not wait for others.
        reasons: counts of why batches were not larger.
    """

    def __init__(self, name: str, *, preparers: int, runs: tuple[int, int], recheck: Callable[[], None]) -> None:
        self._name = name
        self._preparers = preparers
        self._runs = runs
        self._recheck = recheck
        self.pending = 0
        self.preparing = 0
        self.running = [0, 0]
        self.began: float | None = None
        self.in_runs = self.items_in_runs = 0
        self.arrived, self.ready, self.slow = JobQueue(), JobQueue(), JobQueue()
        self.to_finish: deque[tuple[Job, float]] = deque()
        self.is_closed = False
        self.reasons: Counter[str] = Counter()

    @property
    def is_free(self) -> bool:
        """Return whether nothing waits and a run could begin."""
        return not (self.ready or self.arrived) and self.running[USUAL] < self._runs[USUAL] and not self.is_closed

    @property
    def idle(self) -> int:
        """Return the number of usual runs that could begin now."""
        return self._runs[USUAL] - self.running[USUAL]

    @property
    def is_busy(self) -> bool:
        """Return whether a thread is working."""
        return self.preparing > 0 or any(self.running) or bool(self.to_finish)

    def count_one(self, sign: int) -> None:
        """Count a job of one item that begins (1) or ends (-1) its run without having waited."""
        self.pending += sign
        self.running[USUAL] += sign
        self.in_runs += sign
        self.items_in_runs += sign

    def enter(self, job: Job) -> None:
        """Add a job that has arrived."""
        self.arrived.push(job)
        self.pending += 1

    def wait(self, job: Job) -> None:
        """Queue a prepared job for its run."""
        job.wait()
        self._queue_of(job).push(job)

    def drop(self, job: Job) -> None:
        """Remove a waiting job whose result is not needed."""
        queue = self._queue_of(job)
        self.over(job)
        queue.discard(job)

    def over(self, job: Job) -> None:
        """End a job."""
        if job.stage is not Stage.OVER:
            job.end()
            self.pending -= 1

    def drain(self) -> list[Job]:
        """Remove and return all waiting jobs."""
        jobs = [*self.arrived.drain(), *self.ready.drain(), *self.slow.drain()]
        for job in jobs:
            self.over(job)
        return jobs

    def deadline_error(self) -> DeadlineExceededError:
        """Return the error of a request whose deadline has passed."""
        return DeadlineExceededError(f"'{self._name}' did not answer within the request's time")

    def next(self, steps: Worker) -> Step | None:
        """Return the next step of a thread, or None. Steps later in a request come first."""
        if self.to_finish:
            return partial(steps.finish, *self.to_finish.popleft())
        if self.running[USUAL] < self._runs[USUAL] and self.ready:
            jobs = self._next_run()
            if jobs:
                return partial(steps.run, jobs, USUAL)
        if self.running[SLOW] < self._runs[SLOW] and (job := self._next(self.slow)) is not None:
            self._begin_run([job], SLOW)
            return partial(steps.run, [job], SLOW)
        if self.preparing < self._preparers and (job := self._next(self.arrived)) is not None:
            self.preparing += 1
            return partial(steps.prepare, job, job.begin())
        if not (self.ready or self.arrived or self.preparing):
            self.began = None  # the jobs that waited for the next run were dropped
        return None

    def end_run(self, jobs: list[Job], kind: int) -> None:
        """Count a run as ended."""
        self.running[kind] -= 1
        self.in_runs -= len(jobs)
        self.items_in_runs -= 0 if kind else items_of(jobs)

    def _queue_of(self, job: Job) -> JobQueue:
        if job.run_spec is None:
            return self.arrived
        return self.slow if job.run_spec.is_slow and self._runs[SLOW] else self.ready

    def _next(self, queue: JobQueue) -> Job | None:
        """Return the next job that is still needed."""
        while (job := queue.pop()) is not None:
            if not job.token.is_cancelled():
                return job
            self.over(job)
            job.resolve(error=self.deadline_error())
        return None

    def _next_run(self) -> list[Job]:
        """Return the next job and those that share its run; nothing while all may wait for more."""
        put_off: list[Job] = []
        try:
            while (job := self._next(self.ready)) is not None:
                is_known = any(_is_same_group(job, each) for each in put_off)
                jobs = [] if is_known else self._begin_batch(job)
                if jobs:
                    return jobs
                put_off.append(job)
            return []
        finally:
            for job in put_off:
                self.ready.push(job)

    def _begin_batch(self, job: Job) -> list[Job]:
        """Begin a job's run and return all jobs that share it; nothing while the job may wait for more."""
        jobs, batches = [job], None if job.run_spec is None else job.run_spec.batches
        if job.run_spec is not None and batches is not None:
            jobs, reason = choose_batch(job, self.ready.of_group(job.run_spec.group), batches.sizes)
            left_s = batches.delay_s - (time.perf_counter() - job.since)
            if left_s > 0 and reason != FULL and not self.is_closed:
                with suppress(RuntimeError):  # the loop is closed
                    job.loop.call_soon_threadsafe(job.loop.call_later, left_s, self._recheck)
                return []
            self.reasons[OTHERS if reason == ALONE and self.ready else reason] += 1
        self._begin_run(jobs, USUAL)
        for other in jobs[1:]:
            self.ready.discard(other)
        return jobs

    def _begin_run(self, jobs: list[Job], kind: int) -> None:
        for job in jobs:
            job.begin()
        self.running[kind] += 1
        self.in_runs += len(jobs)
        self.items_in_runs += 0 if kind else items_of(jobs)


def choose_batch(first: Job, others: Sequence[Job], sizes: Sequence[int]) -> tuple[list[Job], str]:
    """Return the first job and those that share its run, in order, and the reason why there are no more.

    Takes as many as fit, but, if possible, no more than fill a compiled size: the remainder would need a run of its
    own, and the others would wait for it.

    Returns:
        The reason is never OTHERS, since other groups are not known here.
    """
    most = sizes[-1]
    jobs, counts = [first], [_items(first)]
    is_full = counts[0] >= most
    for job in others:
        if counts[-1] + _items(job) > most:
            is_full = True
            break
        jobs.append(job)
        counts.append(counts[-1] + _items(job))
    is_full = is_full or counts[-1] == most
    exact = [at for at, count in enumerate(counts) if count in sizes and at > 0]
    if exact:
        jobs = jobs[: exact[-1] + 1]
    return jobs, FULL if is_full else FEW if len(jobs) > 1 else ALONE


def split_batch(items: int, sizes: Sequence[int]) -> list[int]:
    """Split a batch into compiled sizes, large ones first; 1 must be one of them."""
    found: list[int] = []
    for size in reversed(sizes):
        found += [size] * (items // size)
        items %= size
    return found


def _is_same_group(one: Job, other: Job) -> bool:
    return one.run_spec is not None and other.run_spec is not None and one.run_spec.group == other.run_spec.group


def items_of(jobs: list[Job]) -> int:
    """Return the number of items in a run."""
    return sum(1 if job.run_spec is None else job.run_spec.items for job in jobs)


class JobQueue:
    """Waiting jobs in order; so few that a sorted list is as fast as a heap, and jobs can leave from anywhere."""

    def __init__(self) -> None:
        self._jobs: list[Job] = []
        self.items = 0

    def __len__(self) -> int:
        return len(self._jobs)

    def push(self, job: Job) -> None:
        """Add a job."""
        bisect.insort(self._jobs, job)
        self.items += _items(job)

    def pop(self) -> Job | None:
        """Remove and return the next job; the caller must begin it."""
        job = self._jobs[0] if self._jobs else None
        if job is not None:
            self.discard(job)
        return job

    def of_group(self, group: Hashable) -> list[Job]:
        """Return all waiting jobs of a group in order, without removing them."""
        return [job for job in self._jobs if job.run_spec and job.run_spec.group == group]

    def discard(self, job: Job) -> None:
        """Remove a job."""
        del self._jobs[bisect.bisect_left(self._jobs, job)]
        self.items -= _items(job)

    def drain(self) -> list[Job]:
        """Remove and return all waiting jobs."""
        jobs, self._jobs, self.items = self._jobs, [], 0
        return jobs


def _items(job: Job) -> int:
    return 1 if job.run_spec is None else job.run_spec.items
