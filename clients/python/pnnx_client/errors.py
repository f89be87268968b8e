"""Errors of the clients.

PnnxError                  status              also a
├─ TransportError          none                ConnectionError    the connection was refused or broke
├─ DeadlineError           none, 408, 504      TimeoutError       no answer in time
├─ DeniedError             401, 403            PermissionError    no API key, or one without this permission
├─ NotFoundError           404                 LookupError        no such model, version or route
├─ InvalidRequestError     every other 4xx     ValueError         malformed, or does not fit the model
│  └─ TooLargeError        413, 414, 431
├─ RetryLaterError         with retry_after_s                     temporary
│  ├─ BusyError            429                                    the queue is full
│  └─ UnavailableError     503                                    loading, failed to load, stopping
└─ ServerError             every other                            a fault of the server, or an invalid answer
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar, Final

import httpx


class PnnxError(Exception):
    """Base class of all errors.

    Args:
        message: where, what was found, what was expected.
        code: the server's error code, for programs; default: that of the class.
        detail: details of the server, for programs.
        status: HTTP status; None without an answer.
    """

    code: ClassVar[str] = "error"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        detail: Mapping[str, Any] | None = None,
        status: int | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.detail = dict(detail or {})
        self.status = status
        self.retry_after_s = retry_after_s
        if code is not None:
            self.code = code  # type: ignore[misc]  # overrides the class's code


class TransportError(PnnxError, ConnectionError):
    """No answer: the connection was refused, or broke."""

    code = "no_answer"


class DeadlineError(PnnxError, TimeoutError):
    """No answer in time."""

    code = "deadline_exceeded"


class DeniedError(PnnxError, PermissionError):
    """The API key is missing, or lacks this permission."""

    code = "forbidden"


class NotFoundError(PnnxError, LookupError):
    """No such model, version or route."""

    code = "not_found"


class InvalidRequestError(PnnxError, ValueError):
    """The request is malformed, or does not fit the model."""

    code = "invalid_request"


class TooLargeError(InvalidRequestError):
    """A body, tensor, image or batch exceeds a limit of the server."""

    code = "too_large"


class RetryLaterError(PnnxError):
    """Temporary error; ``retry_after_s`` is the server's estimate, or None."""

    code = "retry_later"


class BusyError(RetryLaterError):
    """The queue is full."""

    code = "queue_full"


class UnavailableError(RetryLaterError):
    """The model is loading or has failed to load, or the server is stopping."""

    code = "not_ready"


class ServerError(PnnxError):
    """The server failed, or its answer is invalid."""

    code = "internal"


_BY_STATUS: Final[dict[int, type[PnnxError]]] = {
    401: DeniedError, 403: DeniedError,
    404: NotFoundError,
    408: DeadlineError, 504: DeadlineError,
    413: TooLargeError, 414: TooLargeError, 431: TooLargeError,
    429: BusyError,
    503: UnavailableError,
}  # fmt: skip
_LONGEST: Final = 4_000


def from_answer(answer: httpx.Response) -> PnnxError:
    """Return the error of an answer, from this server, another V2 server, or a proxy."""
    status = answer.status_code
    kind = _BY_STATUS.get(status) or (InvalidRequestError if 400 <= status < 500 else ServerError)
    said = _said(answer)
    return kind(
        str(said.get("message", f"{status} {answer.reason_phrase}"))[:_LONGEST],
        code=said.get("code"),
        detail=said.get("detail"),
        status=status,
        retry_after_s=_retry_after_s(answer.headers),
    )


def from_transport(failure: httpx.RequestError) -> PnnxError:
    """Return the error of a request without an answer."""
    why = str(failure) or type(failure).__name__
    where = failure.request.url.netloc.decode()
    if isinstance(failure, httpx.TimeoutException):
        return DeadlineError(f"{where} did not answer in time: {why}")
    if isinstance(failure, httpx.TransportError):
        return TransportError(f"{where} did not answer: {why}")
    return ServerError(f"{where} gave an answer that cannot be read: {why}")


def _said(answer: httpx.Response) -> Mapping[str, Any]:
    """Return the error of the body: an object, or only a message on V2 routes."""
    try:
        error = json.loads(answer.content)["error"]
    except (ValueError, LookupError, TypeError):
        return {}
    if isinstance(error, str):
        return {"message": error}
    return error if isinstance(error, dict) else {}


def _retry_after_s(headers: httpx.Headers) -> float | None:
    """Return the pause that the server asks for, from the more exact of two headers."""
    exact = headers.get("retry-after-ms", "")
    if re.fullmatch(r"\d{1,12}(\.\d{0,12})?", exact, re.ASCII):
        return float(exact) / 1e3
    return _seconds(headers.get("retry-after"))


def _seconds(value: str | None) -> float | None:
    """Return the seconds of Retry-After, which may be a date."""
    if value is None:
        return None
    try:
        return max(
            0.0, float(value) if value.strip().isdigit() else parsedate_to_datetime(value).timestamp() - time.time()
        )
    except ValueError:
        return None
