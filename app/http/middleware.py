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
from app.tracing.request import FinishedRequest, Spans, TracedRequest, server_timing

log = logging.getLogger(__name__)

# Requests of load balancers, orchestrators and Prometheus, several a minute: neither logged nor traced.
_PROBES: Final = re.compile(r"/health/.*|/v2/health/.*|/v2/models/.+/ready|/metrics")
access = logging.getLogger("app.access")

Headers: TypeAlias = Iterable[tuple[bytes, bytes]]

# What nginx logs for a client that closed the connection.
GONE: Final = 499
_ALWAYS: Final = (b"x-content-type-options", b"nosniff")
# An SVG is a document, and could bring programs along; /docs, which needs them, is HTML.
_DRAWING: Final = (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'")
_JSON: Final = (b"content-type", b"application/json")


class Exchange(TracedRequest):
    """A request over HTTP, and its answer.

    Attributes:
        status: of the answer, once there is one.
    """

    def __init__(self, method: str, path: str, headers: Headers) -> None:
        super().__init__(headers)
        self.method = method
        self._path = path
        self.status = 0

    def leave(self) -> None:
        """It is over."""
        trace_id.set("-")
        account.set(None)
        request_id.set("-")

    def headers(self, headers: Headers) -> list[tuple[bytes, bytes]]:
        """The answer's headers with those every answer has."""
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
        """What is answered for a fault nobody foresaw."""
        error = InternalError(f"internal error; see the server's log, request id {self.id}")
        body = dump_json(error.body())
        return error.status, [_JSON, (b"content-length", b"%d" % len(body))], body

    def finished_as(self, route: str | None) -> FinishedRequest:
        """Return what spans are told of the request.

        route: the template of the path that answered it, such as ``/models/{name}/infer``; None where there is none.
        """
        attributes: dict[str, str | int] = {
            "http.request.method": self.method,
            "url.path": safe_text(self._path),
            "http.response.status_code": self.status,
        }
        if route is not None:
            attributes["http.route"] = route
        return self.finished(self.method, attributes, is_failed=self.status >= 500)

    def log(self) -> None:
        """Write the access log's line."""
        access.info("%s %s %d", self.method, self._path, self.status, extra=self.fields())


class RequestMiddleware:
    """Wraps the app.

    Args:
        statuses: answers are counted in it.
        access_log: whether each request, except probes, has a line of its own.
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
        exchange = _AsgiExchange(scope, receive, send)
        is_probe = _PROBES.fullmatch(scope["path"]) is not None
        spans = None if is_probe else self._spans
        if spans is not None:
            exchange.begin_trace()
        # A request has its context to itself, and so has the next one on its connection.
        exchange.enter()
        try:
            # Nobody else asks how long bodies are that came in: nobody else pays for it.
            await self._app(exchange.scope, exchange.receive if self._access_log else receive, exchange.send)
        except asyncio.CancelledError:
            if asyncio.current_task().cancelling():  # type: ignore[union-attr]  # a request always runs in a task
                raise
            exchange.status = exchange.status or GONE
        except Exception:
            log.exception("%s %s", scope["method"], scope["path"])
            await exchange.fail()
        finally:
            if exchange.status:
                self._statuses[exchange.status] += 1
            if spans is not None:
                spans.record(exchange.finished_as(exchange.route))
            if self._access_log and not is_probe:
                exchange.log()
            exchange.leave()


class _AsgiExchange(Exchange):
    """One request on its way through the app, and what was sent for it."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        super().__init__(scope["method"], scope["path"], scope["headers"])
        self._receive = receive
        self._send = send
        self.scope = {**scope, "method": "GET"} if self.method == "HEAD" else scope

    @property
    def route(self) -> str | None:
        """Return the template of the path that answered the request; None where no route matched."""
        found = self.scope.get("route")
        return found if isinstance(found, str) else getattr(found, "path", None)  # FastAPI gives the route itself

    async def receive(self) -> Message:
        """Pass a message of the client on, and count what it has of the body."""
        message = await self._receive()
        self.received += len(message.get("body", b""))
        return message

    async def send(self, message: Message) -> None:
        """Pass a message on: with the request's id, and for HEAD without the body."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": self.headers(message["headers"])}
        elif self.method == "HEAD":
            message = {**message, "body": b""}
        else:
            self.sent += len(message.get("body", b""))
        await self._send(message)

    async def fail(self) -> None:
        """Answer 500, if nothing was sent yet."""
        if self.status:
            return
        status, headers, body = self.failure()
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})
