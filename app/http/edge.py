"""The outermost layer of the app, in plain ASGI: request ids, HEAD, one log line, and the last word on errors.

* Every request has an id: the client's X-Request-Id when it is harmless, a fresh one otherwise. It is in every log
  line of the request and in the answer's header.
* A request of a W3C trace (traceparent) is logged with the trace's id, and answered with it.
* An answer of a model says where its time went (Server-Timing).
* HEAD is answered as GET without the body.
* An exception nobody foresaw becomes a plain 500 with nothing of its inside, and a log line with everything.
* Every answer says that its Content-Type is not to be guessed at, and a drawing that it is nothing but a drawing.
* A client that is gone gets no answer; nothing is logged as an error.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterable
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.codec.answers import dump_json
from app.errors import InternalError
from app.http.reception import RECEPTION, Reception
from app.log import request_id, trace_id
from app.models.account import Account, account
from app.tracing.context import TraceContext
from app.tracing.request import Spans, Told
from app.tracing.told import id_of, server_timing
from app.wording import told

log = logging.getLogger(__name__)
access = logging.getLogger("app.access")

_ALWAYS: Final = (b"x-content-type-options", b"nosniff")
# An SVG is a document, and could bring programs along; /docs, which needs them, is HTML.
_DRAWING: Final = (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'")
# Asked for some times a minute, by nobody who wants to see a trace of it.
_PROBES: Final = ("/health/", "/v2/health/", "/metrics")
_GONE: Final = 499  # what nginx logs for a client that closed the connection


class Edge:
    """Wraps the app.

    Args:
        statuses: answers are counted in it.
        access_log: whether each request has a line of its own.
        spans: where spans of requests go, where there is such a place.
    """

    def __init__(
        self,
        app: ASGIApp,
        statuses: Counter[int] | None = None,
        access_log: bool = False,
        spans: Spans | None = None,
    ) -> None:
        self._app = app
        self._spans = spans
        self._statuses: Counter[int] = Counter() if statuses is None else statuses
        self._access_log = access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the lifespan, which passes through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, receive, send)
        # A request has its context to itself, and so has the next one on its connection.
        request_id.set(exchange.id)
        account.set(exchange.account)
        trace_id.set("-" if exchange.trace is None else exchange.trace.trace)
        try:
            # Nobody else asks how long bodies are that came in: nobody else pays for it.
            await self._app(exchange.scope, exchange.receive if self._access_log else receive, exchange.send)
        except asyncio.CancelledError:
            if asyncio.current_task().cancelling():  # type: ignore[union-attr]  # a request always runs in a task
                raise
            exchange.status = exchange.status or _GONE
        except Exception:
            log.exception("%s %s", scope["method"], scope["path"])
            await exchange.fail()
        finally:
            if exchange.status:
                self._statuses[exchange.status] += 1
            if self._spans is not None and not scope["path"].startswith(_PROBES):
                self._spans.tell(exchange.told())
            if self._access_log:
                exchange.log()
            trace_id.set("-")
            account.set(None)
            request_id.set("-")


class _Exchange:
    """One request and what was sent for it."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._method = scope["method"]
        self.status = 0
        self._start = time.perf_counter()
        self._received = self._sent = 0
        self.account = Account()
        self.trace: TraceContext | None = None
        given, traces = b"", 0
        for key, value in scope["headers"]:
            if key == b"x-request-id":
                given = given or value
            elif key == b"traceparent":
                traces += 1
                self.trace = TraceContext.of(value) if traces == 1 else None  # of two, none is to be believed
        self.id = id_of(given)
        self.scope = {**scope, "method": "GET"} if self._method == "HEAD" else scope

    async def receive(self) -> Message:
        """Pass a message of the client on, and count what it has of the body."""
        message = await self._receive()
        self._received += len(message.get("body", b""))
        return message

    async def send(self, message: Message) -> None:
        """Pass a message on: with the request's id, and for HEAD without the body."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": self._headers(message["headers"])}
        elif self._method == "HEAD":
            message = {**message, "body": b""}
        else:
            self._sent += len(message.get("body", b""))
        await self._send(message)

    def _headers(self, headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """The answer's headers with those every answer has."""
        own = [*headers, (b"x-request-id", self.id.encode()), _ALWAYS]
        if self.trace is not None:
            own.append((b"traceparent", self.trace.header()))
        if self.account.timing is not None:
            own.append((b"server-timing", server_timing(self.account.timing)))
            if self.account.timing.was_cached is not None:
                own.append((b"x-cache", b"hit" if self.account.timing.was_cached else b"miss"))
        kinds = [value for key, value in own if key == b"content-type"]
        return [*own, _DRAWING] if any(kind.startswith(b"image/svg") for kind in kinds) else own

    async def fail(self) -> None:
        """Answer 500, if nothing was sent yet."""
        if self.status:
            return
        error = InternalError(f"internal error; the server's log has the details under request id {self.id}")
        body = dump_json(error.body())
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await self.send({"type": "http.response.start", "status": error.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})

    def told(self) -> Told:
        """What a trace is told of it."""
        attributes = {
            "http.request.method": self._method,
            "url.path": told(self.scope["path"]),
            "http.response.status_code": self.status,
        }
        return Told(self._method, self.id, self._start, self.account, self.trace, attributes, self.status >= 500)

    def log(self) -> None:
        """The access log's line: what it was, and what it took; nothing of what was in it."""
        reception: Reception | None = self.scope.get(RECEPTION)
        fields: dict[str, object] = {
            "took_ms": round((time.perf_counter() - self._start) * 1e3, 3),
            "bytes_in": self._received + (0 if reception is None else reception.taken),
            "bytes_out": self._sent,
            **self.account.fields(),
        }
        access.info("%s %s %d", self._method, self.scope["path"], self.status, extra=fields)
