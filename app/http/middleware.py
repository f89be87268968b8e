"""The outermost middleware: request ids, HEAD, the log line, and unexpected errors.

* Every request has an id: the client's X-Request-Id if it has only safe characters, otherwise a new one. It is in every
  log line of the request and in the answer's header.
* A request of a W3C trace (traceparent) is logged with the trace's id, and answered with it.
* The answer of a model has its stage times (Server-Timing).
* HEAD is answered as GET without the body.
* An unexpected exception becomes a 500 without internals, and a log line with the traceback.
* Every answer forbids guessing its Content-Type, and an SVG forbids scripts.
* A client that has disconnected gets no answer, and no error is logged.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Iterable
from typing import Final, TypeAlias

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.codec.answers import dump_json
from app.errors import InternalError
from app.log import request_id, trace_id
from app.messages import safe_text
from app.models.statistics import account
from app.tracing.request import Spans, TracedRequest, server_timing

log = logging.getLogger(__name__)

# Requests of load balancers, orchestrators and Prometheus are neither logged nor traced.
_PROBES: Final = re.compile(r"/health/.*|/v2/health/.*|/v2/models/.+/ready|/metrics")
access = logging.getLogger("app.access")

Headers: TypeAlias = Iterable[tuple[bytes, bytes]]

# Status in logs and metrics of a request whose client disconnected, as in nginx.
GONE: Final = 499
_ALWAYS: Final = (b"x-content-type-options", b"nosniff")
# An SVG could contain scripts.
_DRAWING: Final = (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'")
_JSON: Final = (b"content-type", b"application/json")


class Exchange(TracedRequest):
    """A request over HTTP and its answer.

    Attributes:
        status: of the answer, 0 before there is one.
    """

    def __init__(self, method: str, path: str, headers: Headers) -> None:
        super().__init__(headers)
        self.method = method
        self._path = path
        self.status = 0

    def leave(self) -> None:
        """End logging and accounting under this request."""
        trace_id.set("-")
        account.set(None)
        request_id.set("-")

    def headers(self, headers: Headers) -> list[tuple[bytes, bytes]]:
        """Return the answer's headers and those of every answer."""
        own = [*headers, (b"x-request-id", self.id.encode()), _ALWAYS]
        if self.trace is not None and self.trace.parent is not None:
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
        """Return status, headers and body of the answer to an unexpected error."""
        error = InternalError(f"internal error; see the server's log, request id {self.id}")
        body = dump_json(error.body())
        return error.status, [_JSON, (b"content-length", b"%d" % len(body))], body

    def record(self, spans: Spans, route: str | None) -> None:
        """Record the request's span.

        route: the template of the path, such as ``/models/{name}/infer``; None for an unknown path.
        """
        attributes: dict[str, str | int] = {
            "http.request.method": self.method,
            "url.path": safe_text(self._path),
            "http.response.status_code": self.status,
        }
        if route is not None:
            attributes["http.route"] = route
        spans.record(self, self.method, attributes, is_failed=self.status >= 500)

    def log(self) -> None:
        """Write the line of the access log."""
        access.info("%s %s %d", self.method, self._path, self.status, extra=self.fields())


class RequestMiddleware:
    """The middleware.

    Args:
        app: the wrapped app.
        statuses: counts answers by status.
        access_log: whether each request, except probes, is logged.
        spans: recorder of spans, or None.
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
        """Handle a request, or pass on the lifespan."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _AsgiExchange(scope, receive, send)
        is_probe = _PROBES.fullmatch(scope["path"]) is not None
        spans = None if is_probe else self._spans
        if spans is not None:
            exchange.begin_trace()
        # Each request runs in a context of its own.
        exchange.enter()
        try:
            # Only the access log needs the bytes received, so only then they are counted.
            await self._app(exchange.scope, exchange.receive if self._access_log else receive, exchange.send)
        except asyncio.CancelledError:
            if asyncio.current_task().cancelling():  # type: ignore[union-attr]  # a request always runs in a task
                raise
            exchange.status = exchange.status or GONE
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            await exchange.fail()
        finally:
            if exchange.status:
                self._statuses[exchange.status] += 1
            if spans is not None:
                exchange.record(spans, exchange.route)
            if self._access_log and not is_probe:
                exchange.log()
            exchange.leave()


class _AsgiExchange(Exchange):
    """A request on its way through the app, and what was sent for it."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        super().__init__(scope["method"], scope["path"], scope["headers"])
        self._receive = receive
        self._send = send
        self.scope = {**scope, "method": "GET"} if self.method == "HEAD" else scope

    @property
    def route(self) -> str | None:
        """Return the template of the path that answered, or None if no route matched."""
        found = self.scope.get("route")
        return found if isinstance(found, str) else getattr(found, "path", None)  # FastAPI stores the route itself

    async def receive(self) -> Message:
        """Pass on a message of the client, and count its bytes."""
        message = await self._receive()
        self.received += len(message.get("body", b""))
        return message

    async def send(self, message: Message) -> None:
        """Pass on a message: with the request's id, for HEAD without the body."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": self.headers(message["headers"])}
        elif self.method == "HEAD":
            message = {**message, "body": b""}
        else:
            self.sent += len(message.get("body", b""))
        await self._send(message)

    async def fail(self) -> None:
        """Answer 500 if nothing was sent yet."""
        if self.status:
            return
        status, headers, body = self.failure()
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})
