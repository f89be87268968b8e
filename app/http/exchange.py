"""One request and what is told of it: its id, the headers that every answer has, its line in the log."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Final, TypeAlias

from app.codec.answers import dump_json
from app.errors import InternalError
from app.log import request_id, trace_id
from app.models.account import Account, account
from app.tracing.context import TraceContext
from app.tracing.request import Told
from app.tracing.told import id_of, server_timing
from app.wording import told

access = logging.getLogger("app.access")

Headers: TypeAlias = Iterable[tuple[bytes, bytes]]

# What nginx logs for a client that closed the connection.
GONE: Final = 499
_ALWAYS: Final = (b"x-content-type-options", b"nosniff")
# An SVG is a document, and could bring programs along; /docs, which needs them, is HTML.
_DRAWING: Final = (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'")
_JSON: Final = (b"content-type", b"application/json")


class Exchange:
    """A request, from its head to the end of its answer.

    Attributes:
        status: of the answer, once there is one.
        received, sent: bytes of the bodies.
        account: what others write down of it.
    """

    def __init__(self, method: str, path: str, headers: Headers) -> None:
        self.method = method
        self._path = path
        self.status = 0
        self._start = time.perf_counter()
        self.received = self.sent = 0
        self.account = Account()
        self.trace: TraceContext | None = None
        given, traces = b"", 0
        for key, value in headers:
            if key == b"x-request-id":
                given = given or value
            elif key == b"traceparent":
                traces += 1
                self.trace = TraceContext.of(value) if traces == 1 else None  # of two, none is to be believed
        self.id = id_of(given)

    def enter(self) -> None:
        """What is done and logged from now on in this context is done for it."""
        request_id.set(self.id)
        account.set(self.account)
        trace_id.set("-" if self.trace is None else self.trace.trace)

    def leave(self) -> None:
        """It is over."""
        trace_id.set("-")
        account.set(None)
        request_id.set("-")

    def headers(self, headers: Headers) -> list[tuple[bytes, bytes]]:
        """The answer's headers with those every answer has."""
        own = [*headers, (b"x-request-id", self.id.encode()), _ALWAYS]
        if self.trace is not None:
            own.append((b"traceparent", self.trace.header()))
        timing = self.account.timing
        if timing is not None:
            own.append((b"server-timing", server_timing(timing)))
            if timing.was_cached is not None:
                own.append((b"x-cache", b"hit" if timing.was_cached else b"miss"))
        for key, value in own:
            if key == b"content-type" and value.startswith(b"image/svg"):
                return [*own, _DRAWING]
        return own

    def failure(self) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        """What is answered for a fault nobody foresaw."""
        error = InternalError(f"internal error; the server's log has the details under request id {self.id}")
        body = dump_json(error.body())
        return error.status, [_JSON, (b"content-length", b"%d" % len(body))], body

    def told(self) -> Told:
        """What a trace is told of it."""
        attributes: dict[str, str | int] = {
            "http.request.method": self.method,
            "url.path": told(self._path),
            "http.response.status_code": self.status,
        }
        return Told(self.method, self.id, self._start, self.account, self.trace, attributes, self.status >= 500)

    def log(self) -> None:
        """The access log's line: what it was, and what it took; nothing of what was in it."""
        fields: dict[str, object] = {
            "took_ms": round((time.perf_counter() - self._start) * 1e3, 3),
            "bytes_in": self.received,
            "bytes_out": self.sent,
            **self.account.fields(),
        }
        access.info("%s %s %d", self.method, self._path, self.status, extra=fields)
