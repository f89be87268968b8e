"""Timing of engines that are run in turn, and summary statistics."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

ROUNDS: Final = 10
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Run times in seconds: fastest, median and p99."""

    least_s: float
    median_s: float
    p99_s: float
    runs: int


def take_turns(
    engines: Mapping[str, Callable[[], object]], seconds: float, report: Callable[[int, int], None]
) -> dict[str, Times]:
    """Run every engine for a total of ``seconds``, a tenth of it in each round.

    Taking turns spreads disturbances evenly over all engines.

    Args:
        report: called with the number of the round and the number of rounds.
    """
    spent: dict[str, list[float]] = {name: [] for name in engines}
    for number, name in enumerate(turns(list(engines), ROUNDS)):
        report(number // len(engines), ROUNDS)
        spent[name] += turn(engines[name], seconds / ROUNDS)[0]
    return {name: summary(times) for name, times in spent.items()}


def turns(engines: Sequence[str], rounds: int) -> Iterator[str]:
    """Yield engines once per round, each round beginning with the next one, so that their order varies."""
    for index in range(rounds if engines else 0):
        first = index % len(engines)
        yield from (*engines[first:], *engines[:first])


def turn(run: Callable[[], Answer], seconds: float, least: int = 1) -> tuple[list[float], Answer]:
    """Run for ``seconds`` and at least ``least`` times; return the times in seconds and the last answer.

    The first run, which finds other engines' data in the caches, is not counted.
    """
    answer, clock = run(), time.perf_counter
    times: list[float] = []
    end = clock() + seconds
    while len(times) < least or clock() < end:
        start = clock()
        answer = run()
        times.append(clock() - start)
    return times, answer


def summary(times: Sequence[float]) -> Times:
    """Return the statistics of at least one time."""
    ordered = sorted(times)
    ranks = (math.ceil(len(ordered) * share) - 1 for share in (0.5, 0.99))
    median, p99 = (ordered[rank] for rank in ranks)
    return Times(least_s=ordered[0], median_s=median, p99_s=p99, runs=len(ordered))


def fastest_kernels(profiles: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return the kernels of several profiled runs, each with its least time."""
    return [
        {**each, "time_us": min(profile[place]["time_us"] for profile in profiles)}
        for place, each in enumerate(profiles[0])
    ]
