"""Times of engines that take turns, and what they amount to."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

ROUNDS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """What runs took, in seconds: the fastest, the median, and what 99 of 100 do not exceed."""

    least_s: float
    median_s: float
    p99_s: float
    runs: int


def take_turns(
    engines: Mapping[str, Callable[[], object]], seconds: float, tell: Callable[[int, int], None]
) -> dict[str, Times]:
    """Run every engine for so many seconds in all, a tenth of them in turn; the first run of a turn does not count.

    So whatever else the machine does meanwhile hits all of them alike, and none finds the caches as it left them.

    Args:
        tell: given the number of the round and of all rounds.
    """
    spent: dict[str, list[float]] = {name: [] for name in engines}
    for number in range(ROUNDS):
        tell(number, ROUNDS)
        for name, run in engines.items():
            spent[name] += _turn(run, seconds / ROUNDS)
    return {name: summary(times) for name, times in spent.items()}


def _turn(run: Callable[[], object], seconds: float) -> list[float]:
    run()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return times


def summary(times: Sequence[float]) -> Times:
    """The figures of at least one time."""
    ordered = sorted(times)
    ranks = (math.ceil(len(ordered) * share) - 1 for share in (0.5, 0.99))
    median, p99 = (ordered[rank] for rank in ranks)
    return Times(least_s=ordered[0], median_s=median, p99_s=p99, runs=len(ordered))


def error_share(found: Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]]) -> float:
    """Largest difference as a share of the largest magnitude of its output; infinite for other shapes, and for a NaN.

    Only numbers that are not whole are compared: a class or an index may change with the last bit of what it is from.
    """
    if [each.shape for each in found] != [each.shape for each in expected]:
        return float("inf")
    shares = [_share(a, b) for a, b in zip(found, expected, strict=True) if b.dtype.kind == "f" and b.size]
    return max(shares, default=0.0)


def _share(found: NDArray[Any], expected: NDArray[Any]) -> float:
    wide = expected.astype(np.float64)
    if not np.isfinite(wide).all():
        return 0.0 if np.array_equal(found, expected, equal_nan=True) else float("inf")
    difference = float(np.abs(found.astype(np.float64) - wide).max())
    magnitude = max(float(np.abs(wide).max()), float(np.finfo(np.float32).tiny))
    return difference / magnitude if math.isfinite(difference) else float("inf")


def fastest_kernels(profiles: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """The kernels of several profiled runs, each with the least of its times."""
    return [
        {**each, "time_us": min(profile[place]["time_us"] for profile in profiles)}
        for place, each in enumerate(profiles[0])
    ]
