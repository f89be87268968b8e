"""Counters of a served version. Written from the event loop only, so no lock is needed."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

# Limit of batch sizes counted separately; clients may send any size.
_MAX_SIZES: Final = 64
# Upper bounds of the histograms for times (seconds) and items; one more bucket holds the rest.
TIME_BOUNDS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0
)  # fmt: skip
ITEM_BOUNDS: Final = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(slots=True, kw_only=True)
class Timing:
    """Time of one request by stage, in seconds.

    Attributes:
        was_cached: whether the outputs came from the response cache; None for models without one.
        steps: times of a pipeline's steps that ran, by name; they are part of the others. None for networks.
    """

    queue_s: float = 0.0
    decode_s: float = 0.0
    preprocess_s: float = 0.0
    infer_s: float = 0.0
    postprocess_s: float = 0.0
    cache_s: float = 0.0
    was_cached: bool | None = None
    steps: dict[str, Timing] | None = None

    @property
    def total_s(self) -> float:
        """Return the sum of the stages."""
        return self.queue_s + self.decode_s + self.preprocess_s + self.cache_s + self.infer_s + self.postprocess_s

    def add(self, other: Timing) -> None:
        """Add the times of another request."""
        self.queue_s += other.queue_s
        self.decode_s += other.decode_s
        self.preprocess_s += other.preprocess_s
        self.infer_s += other.infer_s
        self.postprocess_s += other.postprocess_s
        self.cache_s += other.cache_s

    def as_ms(self) -> dict[str, Any]:
        """Return milliseconds with three decimals, as in answers."""
        fields: dict[str, Any] = {
            "queue_ms": _ms(self.queue_s),
            "decode_ms": _ms(self.decode_s),
            "preprocess_ms": _ms(self.preprocess_s),
            "infer_ms": _ms(self.infer_s),
            "postprocess_ms": _ms(self.postprocess_s),
            "total_ms": _ms(self.total_s),
        }
        if self.was_cached is not None:
            fields["cache_ms"] = _ms(self.cache_s)
        if self.steps is not None:
            fields["steps_ms"] = {name: _ms(step.total_s) for name, step in self.steps.items()}
        return fields


def _ms(seconds: float) -> float:
    """Round to microseconds and return milliseconds; faster than ``round``."""
    return int(seconds * 1e6 + 0.5) / 1e3


@dataclass(slots=True)
class Buckets:
    """Histograms of answers by stage time and items, and of runs by batch size.

    Sums are stored elsewhere. The stage preprocess includes decoding.
    """

    queue: list[int] = field(default_factory=lambda: [0] * (len(TIME_BOUNDS) + 1))
    preprocess: list[int] = field(default_factory=lambda: [0] * (len(TIME_BOUNDS) + 1))
    infer: list[int] = field(default_factory=lambda: [0] * (len(TIME_BOUNDS) + 1))
    postprocess: list[int] = field(default_factory=lambda: [0] * (len(TIME_BOUNDS) + 1))
    total: list[int] = field(default_factory=lambda: [0] * (len(TIME_BOUNDS) + 1))
    items: list[int] = field(default_factory=lambda: [0] * (len(ITEM_BOUNDS) + 1))
    batch: list[int] = field(default_factory=lambda: [0] * (len(ITEM_BOUNDS) + 1))

    def add(self, timing: Timing, items: int) -> None:
        """Count an answer."""
        prepared_s = timing.decode_s + timing.preprocess_s
        total_s = timing.queue_s + prepared_s + timing.cache_s + timing.infer_s + timing.postprocess_s
        self.queue[bisect_left(TIME_BOUNDS, timing.queue_s)] += 1
        self.preprocess[bisect_left(TIME_BOUNDS, prepared_s)] += 1
        self.infer[bisect_left(TIME_BOUNDS, timing.infer_s)] += 1
        self.postprocess[bisect_left(TIME_BOUNDS, timing.postprocess_s)] += 1
        self.total[bisect_left(TIME_BOUNDS, total_s)] += 1
        self.items[bisect_left(ITEM_BOUNDS, items)] += 1


@dataclass(slots=True)
class Batches:
    """Number of runs of one batch size, and their times."""

    count: int = 0
    sums: Timing = field(default_factory=Timing)


@dataclass(slots=True)
class Lookups:
    """Requests found, or not found, in the response cache: their number, items and the time for look-ups."""

    count: int = 0
    items: int = 0
    seconds: float = 0.0

    def add(self, timing: Timing, items: int) -> None:
        """Count a request."""
        self.count += 1
        self.items += items
        self.seconds += timing.cache_s


@dataclass(slots=True)
class Statistics:
    """Counters since the version was loaded.

    Attributes:
        requests: answered requests.
        items: pictures or batch rows in them.
        runs: runs that they shared.
        failures: failed requests by error code; ``failed_s`` is their time.
        batches: runs by batch size, for the sizes seen first.
        hits, misses: requests found, or not found, in the response cache.
        steps: for each step of a pipeline, the sum of its seconds and its histogram.
    """

    requests: int = 0
    items: int = 0
    runs: int = 0
    batch_items: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    failed_s: float = 0.0
    batches: dict[int, Batches] = field(default_factory=dict)
    sums: Timing = field(default_factory=Timing)
    buckets: Buckets = field(default_factory=Buckets)
    last_request_at: float | None = None
    hits: Lookups = field(default_factory=Lookups)
    misses: Lookups = field(default_factory=Lookups)
    steps: dict[str, list[float]] = field(default_factory=dict)

    def succeeded(self, timing: Timing, items: int, batch: int, *, is_first: bool = True) -> None:
        """Count an answer.

        Args:
            timing: time of the request.
            items: items of the request.
            batch: items of the run.
            is_first: whether the run is counted with this request.
        """
        self.requests += 1
        self.items += items
        self.last_request_at = time.time()
        self.sums.add(timing)
        self.buckets.add(timing, items)
        if timing.was_cached is not None:
            (self.hits if timing.was_cached else self.misses).add(timing, items)
        if is_first and not timing.was_cached:
            self._ran(timing, batch)
        for name, step in (timing.steps or {}).items():
            row = self.steps.setdefault(name, [0.0] * (len(TIME_BOUNDS) + 2))
            row[0] += step.total_s
            row[1 + bisect_left(TIME_BOUNDS, step.total_s)] += 1

    def _ran(self, timing: Timing, batch: int) -> None:
        self.runs += 1
        self.buckets.batch[bisect_left(ITEM_BOUNDS, batch)] += 1
        self.batch_items += batch
        batches = self.batches.get(batch)
        if batches is None and len(self.batches) < _MAX_SIZES:
            batches = self.batches[batch] = Batches()
        if batches is not None:
            batches.count += 1
            batches.sums.add(timing)

    def failed(self, code: str, seconds: float, times: int = 1) -> None:
        """Count failed requests."""
        self.failures[code] += times
        self.failed_s += seconds

    def as_dict(self) -> dict[str, Any]:
        """Return the counters as in /models."""
        return {
            "requests": self.requests,
            "items": self.items,
            "runs": self.runs,
            "failures": dict(self.failures),
            "sums": self.sums.as_ms(),
            "cache": {"hits": self.hits.count, "misses": self.misses.count},
            "last_request_at": self.last_request_at,
        }


@dataclass(slots=True)
class Account:
    """Record of the model that a request reached and of its timing, for log and response headers.

    The code that answers requests stores it in a context variable, which follows the request through tasks and threads.

    Attributes:
        request_id: name of the request in the log.
        began: time when it reached the model, on time.perf_counter()'s clock.
    """

    request_id: str = "-"
    model: str | None = None
    version: int | None = None
    items: int | None = None
    timing: Timing | None = None
    began: float | None = None

    def fields(self) -> dict[str, object]:
        """Return the fields for a log line."""
        if self.model is None:
            return {}
        fields: dict[str, object] = {"model": self.model, "version": self.version}
        if self.timing is not None:
            parts = self.timing.as_ms()
            del parts["total_ms"]  # the log line has its own total
            fields |= {"items": self.items, **parts}
        return fields


account: Final[ContextVar[Account | None]] = ContextVar("account", default=None)
