"""Jobs that wait, in their order. Those that nobody wants any more lie there until they come up, but not in numbers."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Final

from app.scheduling.job import Job, Stage

# So many of them may lie there beside those that wait.
_MAX_GONE: Final = 64


class Waiting:
    """A heap of jobs."""

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
