"""Answers in the service's own form: JSON by orjson, and errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from fastapi.exceptions import RequestValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from app.codec.answers import dump_json
from app.errors import InvalidRequestError, MethodNotAllowedError, NotFoundError, ServiceError, http_error
from app.memory.reservation import Reservation
from app.messages import cut, explain_validation

# Answers are sent in pieces of this size, so that a slow client's answer waits here, where it is charged, and not in
# the socket's buffer.
PIECE: Final = 1 << 20
_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")


class ChargedResponse(Response):
    """Answer whose request holds memory until it is sent.

    Args:
        pieces: its body.
        reservation: memory of the request.
        media_type: of the body.
        headers: beside type and length.
    """

    def __init__(
        self,
        pieces: Sequence[bytes],
        reservation: Reservation,
        media_type: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status_code, self.media_type, self.background, self.body = 200, media_type, None, b""
        self.raw_headers = good_headers(pieces, media_type, headers or {})
        self._pieces = pieces
        self._reservation = reservation

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer, a large one in pieces, each after the previous ones are on their way."""
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            *others, last = [*cut_pieces(self._pieces)] or [b""]
            for piece in others:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": last})
        finally:
            self._reservation.close()


def good_headers(pieces: Sequence[bytes], media_type: str, headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Return the headers of a successful answer, several times as fast as Starlette's Response."""
    return [
        *[(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()],
        (b"content-length", b"%d" % sum(map(len, pieces))),
        (b"content-type", media_type.encode("latin-1")),
    ]


def cut_pieces(pieces: Sequence[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """Yield the same bytes in pieces of at most PIECE, without a copy."""
    for piece in pieces:
        if len(piece) <= PIECE:
            yield piece
        else:
            whole = memoryview(piece)
            yield from (whole[start : start + PIECE] for start in range(0, len(piece), PIECE))


def json_response(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON answer."""
    return Response(dump_json(value), status, headers=headers, media_type="application/json")


def error_response(error: ServiceError, headers: Mapping[str, str] | None = None) -> Response:
    """Return an error as an answer."""
    return json_response(error.body(), error.status, {**(headers or {}), **error.headers})


def install_error_handlers(app: Starlette) -> None:
    """Convert the service's errors, and those of FastAPI and Starlette, to answers."""
    app.add_exception_handler(ServiceError, _service_error)
    app.add_exception_handler(HTTPException, _http_exception)
    app.add_exception_handler(RequestValidationError, _validation_error)


async def _service_error(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, ServiceError)
    return error_response(exc)


async def _http_exception(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)
    headers = dict(exc.headers or {})
    path = request.scope["path"]  # not request.url, which contains the client's Host header
    if exc.status_code == NotFoundError.status:
        return error_response(NotFoundError(f"unknown path {cut(path)}, expected one that /docs lists"))
    if exc.status_code == MethodNotAllowedError.status:
        allowed = ", ".join(sorted(_methods(request).union(filter(None, headers.get("Allow", "").split(", ")))))
        message = f"{cut(path)}: found method {cut(request.method)}, expected {allowed or 'another method'}"
        return error_response(MethodNotAllowedError(message), {**headers, "Allow": allowed})
    return error_response(http_error(exc.status_code, str(exc.detail)), headers)


def _methods(request: Request) -> set[str]:
    """Return the methods of a path, over all its routes."""
    routes = request.app.routes
    scopes = [{**request.scope, "method": method} for method in _METHODS]
    return {scope["method"] for scope in scopes if any(route.matches(scope)[0] is Match.FULL for route in routes)}


async def _validation_error(request: Request, exc: Exception) -> Response:
    """Answer 400 for a query or path parameter of the wrong type."""
    assert isinstance(exc, RequestValidationError)
    problems = [f"{error['loc'][-1]}: {explain_validation(error)}" for error in exc.errors()]
    return error_response(InvalidRequestError("; ".join(problems)))
