"""Requests of any protocol: their ids and traces, what is counted of them, and where spans of them go."""

from __future__ import annotations

import re
import secrets
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
_ID_BYTES: Final = 8
_AT_ONCE: Final = 256
_HARMLESS: Final = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")
# Made and not yet given away.
_ids: Final[list[str]] = []


@dataclass(slots=True)
class TraceContext:
    """A trace, and this server's part in it (https://www.w3.org/TR/trace-context/).

    A later version of the header may add fields behind those that are known. A header that is not valid is as none.

    Args:
        trace: its id, 32 digits.
        parent: the sender's span, 16 digits; None for a trace that begins here.
        span: of the answer, 16 digits.
        flags: whether the sender records the trace.
    """

    trace: str
    parent: str | None
    span: str
    flags: int

    @classmethod
    def of(cls, header: bytes) -> Self | None:
        """What a traceparent header says; None where it is not valid."""
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
        """For the answer: the same trace, with a span of our own."""
        return f"00-{self.trace}-{self.span}-{self.flags:02x}".encode()


@dataclass(frozen=True, slots=True)
class FinishedRequest:
    """A request that is over.

    Args:
        name: what it asked for, one of few words.
        request: its id.
        began: on time.perf_counter()'s clock.
        account: what came of it.
        trace: that it belongs to, or begins; the ids are those that the log has.
        attributes: what else is told.
        is_failed: by a fault of ours.
    """

    name: str
    request: str
    began: float
    account: Account
    trace: TraceContext
    attributes: Mapping[str, str | int]
    is_failed: bool


class TracedRequest:
    """A request from its headers to the end of its answer.

    Attributes:
        received, sent: bytes of its bodies or messages.
        account: what others write down of it.
    """

    def __init__(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self._start = time.perf_counter()
        self.received = self.sent = 0
        self.trace: TraceContext | None = None
        given, traces = b"", 0
        for key, value in headers:
            if key == b"x-request-id":
                given = given or value
            elif key == b"traceparent":
                traces += 1
                self.trace = TraceContext.of(value) if traces == 1 else None  # of two, none is to be believed
        self.id = id_of(given)
        self.account = Account(self.id)

    def begin_trace(self) -> None:
        """Begin a trace where the client names none, so that the log and the exported span have one id."""
        self.trace = self.trace or TraceContext.begin()

    def enter(self) -> None:
        """Count and log for this request what is done in this context from now on."""
        request_id.set(self.id)
        account.set(self.account)
        trace_id.set("-" if self.trace is None else self.trace.trace)

    def fields(self) -> dict[str, object]:
        """Return times and sizes, as fields of the log's line; nothing of what was in it."""
        return {
            "took_ms": round((time.perf_counter() - self._start) * 1e3, 3),
            "bytes_in": self.received,
            "bytes_out": self.sent,
            **self.account.fields(),
        }

    def finished(self, name: str, attributes: Mapping[str, str | int], *, is_failed: bool) -> FinishedRequest:
        """Return what spans are told of the request, which is over; ``begin_trace`` was called."""
        assert self.trace is not None
        return FinishedRequest(name, self.id, self._start, self.account, self.trace, attributes, is_failed)


class Spans(Protocol):
    """Where spans go; app/tracing/otel.py."""

    def record(self, request: FinishedRequest) -> None:
        """Tell of a request that ends now."""
        ...

    async def close(self) -> None:
        """Send what is left, as far as it can be sent soon."""
        ...


def id_of(given: bytes) -> str:
    """The id that a client gave its request, when it is harmless, and a fresh one otherwise."""
    return given.decode() if given and _HARMLESS.fullmatch(given) else _fresh()


def _fresh() -> str:
    """An id that nobody has had, nor can guess; the system is asked for many at a time."""
    while True:
        try:
            return _ids.pop()  # one step: of two threads each gets its own
        except IndexError:
            digits = secrets.token_hex(_ID_BYTES * _AT_ONCE)
            _ids.extend(digits[at : at + 2 * _ID_BYTES] for at in range(0, len(digits), 2 * _ID_BYTES))


def server_timing(timing: Timing) -> bytes:
    """Where an answer's time went, in milliseconds; decoding is preprocessing."""
    return b"queue;dur=%.3f, pre;dur=%.3f, infer;dur=%.3f, post;dur=%.3f" % (
        timing.queue_s * 1e3,
        (timing.decode_s + timing.preprocess_s) * 1e3,
        timing.infer_s * 1e3,
        timing.postprocess_s * 1e3,
    )
