"""Requests of any protocol: ids, trace contexts, accounting, and the interface for spans."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import getrandbits
from typing import Final, Protocol, Self

from app.log import request_id, trace_id
from app.models.statistics import Account, Timing, account

_FIELDS: Final = rb"(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})"
_HEADER: Final = re.compile(rb"00-%b|(?!00|ff)[0-9a-f]{2}-%b(?:-.*)?" % (_FIELDS, _FIELDS))
_SAMPLED: Final = 1
_MAX_BYTES: Final = 512
_HARMLESS: Final = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")


@dataclass(slots=True)
class TraceContext:
    """Trace of a request and this server's span in it (https://www.w3.org/TR/trace-context/).

    Later versions of the header may add fields after the known ones. An invalid header is ignored.

    Args:
        trace: trace id, 32 hexadecimal digits.
        parent: the sender's span, 16 digits; None for a trace that begins here.
        span: this server's span, 16 digits.
        flags: whether the sender records the trace.
    """

    trace: str
    parent: str | None
    span: str
    flags: int

    @classmethod
    def of(cls, header: bytes) -> Self | None:
        """Return the context of a traceparent header, or None if it is invalid."""
        found = _HEADER.fullmatch(header) if len(header) <= _MAX_BYTES else None
        if found is None:
            return None
        trace, parent, flags = found.group(1, 2, 3) if found[1] else found.group(4, 5, 6)
        return cls(trace.decode(), parent.decode(), f"{getrandbits(64) or 1:016x}", int(flags, 16) & _SAMPLED)

    @classmethod
    def begin(cls) -> Self:
        """Return a new trace, for a request whose client names none."""
        return cls(f"{getrandbits(128) or 1:032x}", None, f"{getrandbits(64) or 1:016x}", _SAMPLED)

    def header(self) -> bytes:
        """Return the traceparent header of the answer: the same trace with this server's span."""
        return f"00-{self.trace}-{self.span}-{self.flags:02x}".encode()


class TracedRequest:
    """A request from its headers to the end of its answer.

    Attributes:
        began: on time.perf_counter()'s clock.
        received, sent: bytes of its bodies or messages.
        account: model, items and timing, filled in by the code that answers.
    """

    def __init__(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self.began = time.perf_counter()
        self.received = self.sent = 0
        self.trace: TraceContext | None = None
        given, traces = b"", 0
        for key, value in headers:
            if key == b"x-request-id":
                given = given or value
            elif key == b"traceparent":
                traces += 1
                self.trace = TraceContext.of(value) if traces == 1 else None  # two headers contradict each other
        self.id = id_of(given)
        self.account = Account(self.id)

    def begin_trace(self) -> None:
        """Begin a trace if the client names none, so that the log and the exported span have one id."""
        self.trace = self.trace or TraceContext.begin()

    def enter(self) -> None:
        """Log and account under this request in the current context from now on."""
        request_id.set(self.id)
        account.set(self.account)
        trace_id.set("-" if self.trace is None else self.trace.trace)

    def fields(self) -> dict[str, object]:
        """Return times and sizes as fields of the log line, without any content."""
        return {
            "took_ms": round((time.perf_counter() - self.began) * 1e3, 3),
            "bytes_in": self.received,
            "bytes_out": self.sent,
            **self.account.fields(),
        }


class Spans(Protocol):
    """Interface of a recorder of spans (app/tracing/otel.py)."""

    def record(
        self, request: TracedRequest, name: str, attributes: Mapping[str, str | int], *, is_failed: bool
    ) -> None:
        """Record a request that ends now; ``begin_trace`` must have been called.

        Args:
            name: of the operation, of low cardinality.
            attributes: of the span.
            is_failed: whether it failed by a fault of the server.
        """
        ...

    async def close(self) -> None:
        """Send what is left, within a few seconds."""
        ...


def id_of(given: bytes) -> str:
    """Return the request id that the client gave if it has only safe characters, else a new one."""
    return given.decode() if given and _HARMLESS.fullmatch(given) else f"{getrandbits(64):016x}"


def server_timing(timing: Timing) -> bytes:
    """Return the Server-Timing header in milliseconds; decoding counts as preprocessing."""
    return b"queue;dur=%.3f, pre;dur=%.3f, infer;dur=%.3f, post;dur=%.3f" % (
        timing.queue_s * 1e3,
        (timing.decode_s + timing.preprocess_s) * 1e3,
        timing.infer_s * 1e3,
        timing.postprocess_s * 1e3,
    )
