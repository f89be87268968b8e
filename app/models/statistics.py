"""What a served version has done so far. Written from the event loop only, so it needs no lock."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

# Batch sizes that are counted by themselves; a client may send any.
_MAX_SIZES: Final = 64
# Upper ends of the buckets that times, in seconds, and items of a request are counted in; one more is for the rest.
TIME_BOUNDS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0
)  # fmt: skip
ITEM_BOUNDS: Final = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(slots=True, kw_only=True)
class Timing:
    """Where one request's time went, in seconds.

    was_cached: whether its outputs were known, and not computed; None for models whose outputs are not kept.
    """

    queue_s: float = 0.0
    decode_s: float = 0.0
    preprocess_s: float = 0.0
    infer_s: float = 0.0
    postprocess_s: float = 0.0
    cache_s: float = 0.0
    was_cached: bool | None = None

    @property
    def total_s(self) -> float:
        """The sum of the parts."""
        return self.queue_s + self.decode_s + self.preprocess_s + self.cache_s + self.infer_s + self.postprocess_s

    def add(self, other: Timing) -> None:
        """Add another one's times to these."""
        self.queue_s += other.queue_s
        self.decode_s += other.decode_s
        self.preprocess_s += other.preprocess_s
        self.infer_s += other.infer_s
        self.postprocess_s += other.postprocess_s
        self.cache_s += other.cache_s

    def as_ms(self) -> dict[str, float]:
        """Milliseconds with three digits after the point, as answers have them."""
        told = {
            "queue_ms": _ms(self.queue_s),
            "decode_ms": _ms(self.decode_s),
            "preprocess_ms": _ms(self.preprocess_s),
            "infer_ms": _ms(self.infer_s),
            "postprocess_ms": _ms(self.postprocess_s),
            "total_ms": _ms(self.total_s),
        }
        if self.was_cached is not None:
            told["cache_ms"] = _ms(self.cache_s)
        return told


def _ms(seconds: float) -> float:
    """Whole microseconds, in milliseconds; ``round`` writes the number out and reads it again."""
    return int(seconds * 1e6 + 0.5) / 1e3


@dataclass(slots=True)
class Buckets:
    """How many answers took so long, stage by stage, and how many had so many items; and how many
    runs had so many.

    Sums are kept elsewhere: here is what they do not tell. Preprocessing is decoding as well.
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
    """How many runs had so many items, and where the time of one request of each went."""

    count: int = 0
    sums: Timing = field(default_factory=Timing)


@dataclass(slots=True)
class Lookups:
    """Requests whose outputs were known, or were not, their items, and what looking them up and keeping them took."""

    count: int = 0
    items: int = 0
    seconds: float = 0.0

    def add(self, timing: Timing, items: int) -> None:
        """Count one."""
        self.count += 1
        self.items += items
        self.seconds += timing.cache_s


@dataclass(slots=True)
class Statistics:
    """Counts and sums since the version was loaded.

    requests that were answered, items (pictures or rows of a batch) in them, and runs that they shared; failures by
    error code, and the time they took; batches by the items of a run, of those sizes that came first. hits were found
    in the response cache, and nothing ran for them; misses were looked for in vain.
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

    def succeeded(self, timing: Timing, items: int, batch: int, *, is_first: bool = True) -> None:
        """Count an answer.

        Args:
            batch: items of the run that made it.
            is_first: whether it stands for the run.
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
        """Count a request, or so many, that got an error instead, after so long."""
        self.failures[code] += times
        self.failed_s += seconds

    def as_dict(self) -> dict[str, Any]:
        """For /models."""
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
    """Record of the model that a request reached and where its time went, for the log and the headers of the answer.

    The code that answers requests puts it where the data plane finds it; it goes through tasks and threads with the
    request's context.

    Attributes:
        request_id: names the request in the log.
        began: when it reached the model, on time.perf_counter()'s clock.
    """

    request_id: str = "-"
    model: str | None = None
    version: int | None = None
    items: int | None = None
    timing: Timing | None = None
    began: float | None = None

    def fields(self) -> dict[str, object]:
        """What is known of it, for a line of the log."""
        if self.model is None:
            return {}
        told: dict[str, object] = {"model": self.model, "version": self.version}
        if self.timing is not None:
            parts = self.timing.as_ms()
            del parts["total_ms"]  # that the line tells in its own way, with what comes before and after
            told |= {"items": self.items, **parts}
        return told


account: Final[ContextVar[Account | None]] = ContextVar("account", default=None)
