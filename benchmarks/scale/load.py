"""What comes, and how long it takes: arrivals and service times, drawn from one generator: a run can be repeated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol


class Service(Protocol):
    """How long a node computes for a request, in seconds."""

    def mean_s(self) -> float:
        """On average."""

    def draw(self, random: Random) -> float:
        """Of one request."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Times that were measured, each as likely as the others; requests come in no order."""

    times_s: Sequence[float]

    def mean_s(self) -> float:
        return sum(self.times_s) / len(self.times_s)

    def draw(self, random: Random) -> float:
        return self.times_s[int(random.random() * len(self.times_s))]


@dataclass(frozen=True, slots=True)
class Exponential:
    """What the formulas of queueing theory are about."""

    average_s: float

    def mean_s(self) -> float:
        return self.average_s

    def draw(self, random: Random) -> float:
        return random.expovariate(1 / self.average_s)


def poisson(rate: float, until_s: float, random: Random) -> Iterator[float]:
    """Times of requests that know nothing of each other, so many a second."""
    now = 0.0
    while (now := now + random.expovariate(rate)) < until_s:
        yield now


def bursty(
    rate: float, until_s: float, random: Random, *, times: float = 3.0, share: float = 0.2, cycle_s: float = 5.0
) -> Iterator[float]:
    """As many on average, but in bursts: the first fifth of each cycle has three times as many, the rest what is left.

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
