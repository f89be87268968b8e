"""Arrivals and service times, drawn from one generator, so that a run can be repeated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol


class Service(Protocol):
    """Service times of requests, in seconds."""

    def mean_s(self) -> float:
        """Return the average time."""

    def draw(self, random: Random) -> float:
        """Return the time of one request."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Measured times, drawn at random."""

    times_s: Sequence[float]

    def mean_s(self) -> float:
        return sum(self.times_s) / len(self.times_s)

    def draw(self, random: Random) -> float:
        return self.times_s[int(random.random() * len(self.times_s))]


@dataclass(frozen=True, slots=True)
class Exponential:
    """Exponential times, for which queueing theory has formulas."""

    average_s: float

    def mean_s(self) -> float:
        return self.average_s

    def draw(self, random: Random) -> float:
        return random.expovariate(1 / self.average_s)


def poisson(rate: float, until_s: float, random: Random) -> Iterator[float]:
    """Yield arrival times of independent requests at a rate a second."""
    now = 0.0
    while (now := now + random.expovariate(rate)) < until_s:
        yield now


def bursty(
    rate: float, until_s: float, random: Random, *, times: float = 3.0, share: float = 0.2, cycle_s: float = 5.0
) -> Iterator[float]:
    """Yield arrivals at the same average rate in bursts: three times as many in the first fifth of each cycle.

    Cycles are as long as each other, so that clusters of any size see the same bursts.

    Args:
        times: the rate of a burst, as a multiple of the average; share * times is at most 1.
        share: of a cycle.
        cycle_s: from one burst to the next.
    """
    begin, calm = 0.0, rate * (1 - share * times) / (1 - share)
    while begin < until_s:
        change = begin + share * cycle_s
        for start, end, own in ((begin, change, rate * times), (change, begin + cycle_s, calm)):
            now = start  # exponential gaps have no memory: what is left of one at a change is drawn anew
            while own and (now := now + random.expovariate(own)) < min(end, until_s):
                yield now
        begin += cycle_s
