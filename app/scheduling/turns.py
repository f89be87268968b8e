"""What waits, what runs, and what is next: nothing of it is done here.

A request is prepared, waits for its run, and is finished; whoever is through with a step asks what the next one is.
All of it is asked and told with the scheduler's lock held.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

from app.errors import DeadlineExceededError
from app.scheduling.job import Job, Stage, Work
from app.scheduling.share import ALONE, FULL, OTHERS, choose
from app.scheduling.threads import Step

# The kinds of runs: usual ones, and those of shapes that there is no code for.
USUAL: Final = 0
SLOW: Final = 1
# So many of them may lie there beside those that wait.
_MAX_GONE: Final = 64


class Steps(Protocol):
    """What threads do."""

    def prepare(self, job: Job, work: Work) -> None:
        """Make a request ready to run."""
        ...

    def run(self, jobs: list[Job], kind: int) -> None:
        """Compute requests, together where they are several."""
        ...

    def finish(self, job: Job, queue_s: float) -> None:
        """Make an answer."""
        ...


class Turns:
    """One model's.

    Args:
        name: of the model, for messages.
        preparers: requests that are prepared at once.
        runs: usual runs that go on at once, and slow ones.
        look_again: called on a job's loop when its time to wait for others is up.

    Attributes:
        pending: requests that are there.
        began: when a run ended, where the next one could begin at once; None where it could not.
        in_runs: requests that run, and their items, those of slow runs left out.
        to_finish: requests that have run, and how long they waited.
        is_closed: whether nobody else comes, so that nothing is waited for.
        reasons: why runs that could have been shared were as small as they were.
    """

    def __init__(self, name: str, *, preparers: int, runs: tuple[int, int], look_again: Callable[[], None]) -> None:
        self._name = name
        self._preparers = preparers
        self._runs = runs
        self._look_again = look_again
        self.pending = 0
        self.preparing = 0
        self.running = [0, 0]
        self.began: float | None = None
        self.in_runs = self.items_in_runs = 0
        self.arrived, self.ready, self.slow = Waiting(), Waiting(), Waiting()
        self.to_finish: deque[tuple[Job, float]] = deque()
        self.is_closed = False
        self.reasons: Counter[str] = Counter()

    @property
    def is_free(self) -> bool:
        """Whether nobody waits, and one more may run."""
        return not (self.ready or self.arrived) and self.running[USUAL] < self._runs[USUAL] and not self.is_closed

    @property
    def idle(self) -> int:
        """Return how many more usual runs could go on now."""
        return self._runs[USUAL] - self.running[USUAL]

    @property
    def is_busy(self) -> bool:
        """Whether a thread is at work."""
        return self.preparing > 0 or any(self.running) or bool(self.to_finish)

    def count_one(self, sign: int) -> None:
        """One runs that has never waited, or has run: 1 or -1."""
        self.pending += sign
        self.running[USUAL] += sign
        self.in_runs += sign
        self.items_in_runs += sign

    def enter(self, job: Job) -> None:
        """One has come."""
        self.arrived.push(job)
        self.pending += 1

    def wait(self, job: Job) -> None:
        """One is prepared, and waits for its run."""
        job.wait()
        self._queue_of(job).push(job)

    def drop(self, job: Job) -> None:
        """One that waits is not wanted any more."""
        queue = self._queue_of(job)
        self.over(job)
        queue.took(job)

    def over(self, job: Job) -> None:
        """Nothing is left to do for it."""
        if job.stage is not Stage.OVER:
            job.end()
            self.pending -= 1

    def drain(self) -> list[Job]:
        """All that wait; none is left."""
        jobs = [*self.arrived.drain(), *self.ready.drain(), *self.slow.drain()]
        for job in jobs:
            self.over(job)
        return jobs

    def too_late(self) -> DeadlineExceededError:
        """What a request is told whose time is up."""
        return DeadlineExceededError(f"'{self._name}' did not answer within the request's time")

    def next(self, steps: Steps) -> Step | None:
        """What a thread should do next: what is nearly done comes first."""
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
            self.began = None  # whoever waited for the next turn has left
        return None

    def end_run(self, jobs: list[Job], kind: int) -> None:
        """A run is over."""
        self.running[kind] -= 1
        self.in_runs -= len(jobs)
        self.items_in_runs -= 0 if kind else items_of(jobs)

    def _queue_of(self, job: Job) -> Waiting:
        if job.demand is None:
            return self.arrived
        return self.slow if job.demand.is_slow and self._runs[SLOW] else self.ready

    def _next(self, queue: Waiting) -> Job | None:
        """The next one that is still wanted."""
        while (job := queue.pop()) is not None:
            if not job.ticket.is_void():
                return job
            self.over(job)
            job.settle(error=self.too_late())
        return None

    def _next_run(self) -> list[Job]:
        """The next one and those that share its run; none where all have still time to wait for more."""
        put_off: list[Job] = []
        try:
            while (job := self._next(self.ready)) is not None:
                is_known = any(_is_same_group(job, each) for each in put_off)
                jobs = [] if is_known else self._together(job)
                if jobs:
                    return jobs
                put_off.append(job)
            return []
        finally:
            for job in put_off:
                self.ready.push(job)

    def _together(self, job: Job) -> list[Job]:
        """Those that share a job's run, about to begin; none where it has time to wait for more."""
        jobs, batches = [job], None if job.demand is None else job.demand.batches
        if job.demand is not None and batches is not None:
            jobs, reason = choose(job, self.ready.of_group(job.demand.group), batches.sizes)
            left_s = batches.delay_s - (time.perf_counter() - job.since)
            if left_s > 0 and reason != FULL and not self.is_closed:
                with suppress(RuntimeError):  # the loop is closed
                    job.loop.call_soon_threadsafe(job.loop.call_later, left_s, self._look_again)
                return []
            self.reasons[OTHERS if reason == ALONE and self.ready else reason] += 1
        self._begin_run(jobs, USUAL)
        for other in jobs[1:]:
            self.ready.took(other)
        return jobs

    def _begin_run(self, jobs: list[Job], kind: int) -> None:
        for job in jobs:
            job.begin()
        self.running[kind] += 1
        self.in_runs += len(jobs)
        self.items_in_runs += 0 if kind else items_of(jobs)


def _is_same_group(one: Job, other: Job) -> bool:
    return one.demand is not None and other.demand is not None and one.demand.group == other.demand.group


def items_of(jobs: list[Job]) -> int:
    """Items of a run."""
    return sum(1 if job.demand is None else job.demand.items for job in jobs)


class Waiting:
    """Jobs that wait, in their order. Those that are not wanted any more stay until they come up, but not many."""

    def __init__(self) -> None:
        self._heap: list[Job] = []
        self._live = 0
        self.items = 0

    def __len__(self) -> int:
        return self._live

    def push(self, job: Job) -> None:
        """Put a job in the queue."""
        heapq.heappush(self._heap, job)
        self._live += 1
        self.items += _items(job)

    def first(self) -> Job | None:
        """The one that is next; it stays."""
        while self._heap and self._heap[0].stage is not Stage.WAITING:
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else None

    def pop(self) -> Job | None:
        """The one that is next; it is the caller's, who must begin it."""
        job = self.first()
        if job is not None:
            heapq.heappop(self._heap)
            self._count_out(job)
        return job

    def of_group(self, group: Hashable) -> list[Job]:
        """All of a group in their order; they stay."""
        return sorted(
            job for job in self._heap if job.stage is Stage.WAITING and job.demand and job.demand.group == group
        )

    def took(self, job: Job) -> None:
        """It was taken out of its turn, or is not wanted any more; its stage says so."""
        self._count_out(job)
        if len(self._heap) > 2 * self._live + _MAX_GONE:
            self._heap = [each for each in self._heap if each.stage is Stage.WAITING]
            heapq.heapify(self._heap)

    def _count_out(self, job: Job) -> None:
        self._live -= 1
        self.items -= _items(job)

    def drain(self) -> list[Job]:
        """All of them; none is left."""
        jobs = [job for job in self._heap if job.stage is Stage.WAITING]
        self._heap, self._live, self.items = [], 0, 0
        return jobs


def _items(job: Job) -> int:
    return 1 if job.demand is None else job.demand.items
