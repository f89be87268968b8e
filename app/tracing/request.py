"""What a trace is told of a request, and who is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from app.models.account import Account
from app.tracing.context import TraceContext


@dataclass(frozen=True, slots=True)
class Told:
    """A request that is over.

    Args:
        name: what it asked for, one of few words.
        request: its id.
        began: on time.perf_counter()'s clock.
        account: what came of it.
        trace: that it belongs to; None begins one.
        attributes: what else is told.
        is_failed: by a fault of ours.
    """

    name: str
    request: str
    began: float
    account: Account
    trace: TraceContext | None
    attributes: Mapping[str, str | int]
    is_failed: bool


class Spans(Protocol):
    """Where spans go; app/tracing/otel.py."""

    def tell(self, request: Told) -> None:
        """Tell of a request that ends now."""
        ...

    async def close(self) -> None:
        """Send what is left, as far as it can be sent soon."""
        ...
