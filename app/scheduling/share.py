"""Which of the requests that wait share a run, and in which parts a batch is run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from app.scheduling.job import Job

# Why a run has no more requests: no more would fit, no more were there, none was, or only others.
FULL: Final = "full"
FEW: Final = "few"
ALONE: Final = "alone"
OTHERS: Final = "others"


def choose(first: Job, others: Sequence[Job], sizes: Sequence[int]) -> tuple[list[Job], str]:
    """The first one and those that go with it, in their order; and why not more.

    As many as fit, but no more than give a size that there is code for, if there is such a number: the rest would make
    the others wait for a run of their own.

    Returns:
        The reason is never OTHERS: here is no word of those.
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


def parts(items: int, sizes: Sequence[int]) -> list[int]:
    """A batch as sizes that there is code for, large ones first; 1 is one of them."""
    found: list[int] = []
    for size in reversed(sizes):
        found += [size] * (items // size)
        items %= size
    return found


def _items(job: Job) -> int:
    return 1 if job.demand is None else job.demand.items
