"""Refusals as clients of the protocol expect them: ``{"error": text}``, and 400 for all that is wrong in a request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from app.errors import InputMismatchError, InvalidRequestError, ServiceError
from app.http.responses import json_response

_SHORT: Final = {404: "Not Found", 405: "Method Not Allowed"}


def error_response(error: ServiceError) -> Response:
    """An error in the protocol's shape."""
    is_unfit = error.status == InputMismatchError.status
    status = InvalidRequestError.status if is_unfit else error.status
    return json_response({"error": error.message}, status, error.headers)


async def _service_error(_: Request, exc: Exception) -> Response:
    assert isinstance(exc, ServiceError)
    return error_response(exc)


async def _http_exception(_: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)
    return json_response({"error": _SHORT.get(exc.status_code, exc.detail)}, exc.status_code, exc.headers)


HANDLERS: Final[dict[type[Exception], Callable[[Request, Exception], Awaitable[Response]]]] = {
    ServiceError: _service_error,
    HTTPException: _http_exception,
}
