"""What a served version has done so far. Written from the event loop only, so it needs no lock."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any


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

    def as_ms(self) -> dict[str, float]:
        """Milliseconds with three digits after the point, as answers have them."""
        parts = {name: getattr(self, f"{name}_s") for name in PARTS}
        return {f"{name}_ms": round(seconds * 1e3, 3) for name, seconds in parts.items()}


PARTS = ("queue", "decode", "preprocess", "infer", "postprocess", "total")


@dataclass(slots=True)
class Statistics:
    """Counts and sums since the version was loaded.

    requests that were answered and items (pictures or rows of a batch) in them; failures by error code.
    """

    requests: int = 0
    items: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    sums: Timing = field(default_factory=Timing)
    last_request_at: float | None = None

    def succeeded(self, timing: Timing, items: int) -> None:
        """Count an answer."""
        self.requests += 1
        self.items += items
        self.last_request_at = time.time()
        for name in Timing.__slots__:
            setattr(self.sums, name, getattr(self.sums, name) + getattr(timing, name))

    def failed(self, code: str) -> None:
        """Count a request that got an error instead."""
        self.failures[code] += 1

    def as_dict(self) -> dict[str, Any]:
        """For /models."""
        return {
            "requests": self.requests,
            "items": self.items,
            "failures": dict(self.failures),
            "sums": self.sums.as_ms(),
            "last_request_at": self.last_request_at,
        }
