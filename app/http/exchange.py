"""One request and what is told of it: its id, the headers that every answer has, its line in the log."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final, TypeAlias

from app.codec.answers import dump_json
from app.errors import InternalError
from app.log import request_id, trace_id
from app.messages import safe_text
from app.models.statistics import account
from app.tracing.request import FinishedRequest, TracedRequest, server_timing

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
