"""What a served version has done so far. Written from the event loop only, so it needs no lock."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(slots=True, kw_only=True)
class Timing:
    """Where one request's time went, in seconds."""

    queue_s: float = 0.0
    decode_s: float = 0.0
    preprocess_s: float = 0.0
    infer_s: float = 0.0
    postprocess_s: float = 0.0

    @property
    def total_s(self) -> float:
        """The sum of the parts."""
        return self.queue_s + self.decode_s + self.preprocess_s + self.infer_s + self.postprocess_s

    def add(self, other: Timing) -> None:
        """Add another one's times to these."""
        for name in Timing.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def as_ms(self) -> dict[str, float]:
        """Milliseconds with three digits after the point, as answers have them."""
        parts = {name: getattr(self, f"{name}_s") for name in PARTS}
        return {f"{name}_ms": round(seconds * 1e3, 3) for name, seconds in parts.items()}


PARTS = ("queue", "decode", "preprocess", "infer", "postprocess", "total")
# Batch sizes that are counted by themselves; a client may send any.
_MAX_SIZES: Final = 64


@dataclass(slots=True)
class Batches:
    """How many requests had so many items, and where their time went."""

    count: int = 0
    sums: Timing = field(default_factory=Timing)


@dataclass(slots=True)
class Statistics:
    """Counts and sums since the version was loaded.

    requests that were answered and items (pictures or rows of a batch) in them; failures by error code, and the time
    they took; batches by their size, of those that came first.
    """

    requests: int = 0
    items: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    failed_s: float = 0.0
    batches: dict[int, Batches] = field(default_factory=dict)
    sums: Timing = field(default_factory=Timing)
    last_request_at: float | None = None

    def succeeded(self, timing: Timing, items: int) -> None:
        """Count an answer."""
        self.requests += 1
        self.items += items
        self.last_request_at = time.time()
        self.sums.add(timing)
        if items in self.batches or len(self.batches) < _MAX_SIZES:
            batches = self.batches.setdefault(items, Batches())
            batches.count += 1
            batches.sums.add(timing)

    def failed(self, code: str, seconds: float) -> None:
        """Count a request that got an error instead, after so long."""
        self.failures[code] += 1
        self.failed_s += seconds

    def as_dict(self) -> dict[str, Any]:
        """For /models."""
        return {
            "requests": self.requests,
            "items": self.items,
            "failures": dict(self.failures),
            "sums": self.sums.as_ms(),
            "last_request_at": self.last_request_at,
        }
