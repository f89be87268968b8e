"""Everything that can go wrong between a client and its server.

PnnxError                  status              also a
├─ TransportError          none                ConnectionError    no answer: refused, or broken off
├─ DeadlineError           none, 408, 504      TimeoutError       no answer in time
├─ DeniedError             401, 403            PermissionError    no API key, or not one for this
├─ NotFoundError           404                 LookupError        no such model, version or route
├─ InvalidRequestError     every other 4xx     ValueError         malformed, or not what the model takes
│  └─ TooLargeError        413, 414, 431
├─ RetryLaterError         with retry_after_s                     it goes away by itself
│  ├─ BusyError            429                                    too many requests wait
│  └─ UnavailableError     503                                    loading, failed to load, stopping
└─ ServerError             every other                            its fault; or an answer that makes no sense
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
    """Base of all.

    Args:
        message: what is wrong: where, what was found, what is expected.
        code: the server's word for it, for programs; where the server gives none, that of the class.
        detail: more of it for programs, as the server gives it.
        status: of HTTP; None where there was no answer.
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
            self.code = code  # type: ignore[misc]  # the server's own word takes the class's place


class TransportError(PnnxError, ConnectionError):
    """There was no answer: the connection was refused, or broke."""

    code = "no_answer"


class DeadlineError(PnnxError, TimeoutError):
    """There was no answer in time."""

    code = "deadline_exceeded"


class DeniedError(PnnxError, PermissionError):
    """The server wants an API key, or another one."""

    code = "forbidden"


class NotFoundError(PnnxError, LookupError):
    """There is no such model, version or route."""

    code = "not_found"


class InvalidRequestError(PnnxError, ValueError):
    """The request is malformed, or not what the model takes."""

    code = "invalid_request"


class TooLargeError(InvalidRequestError):
    """A body, tensor, picture or batch is over the server's limit."""

    code = "too_large"


class RetryLaterError(PnnxError):
    """It goes away by itself: ``retry_after_s`` is when the server thinks so, None where it does not say."""

    code = "retry_later"


class BusyError(RetryLaterError):
    """As many requests wait as may."""

    code = "queue_full"


class UnavailableError(RetryLaterError):
    """The model is loading or has failed to load, or the server is stopping."""

    code = "not_ready"


class ServerError(PnnxError):
    """The server failed, or answered what no server of this kind answers."""

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
    """The error that an answer is, whoever wrote it: a server of this kind, any of the protocol's, a proxy."""
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
    """The error of a request without an answer."""
    why = str(failure) or type(failure).__name__
    where = failure.request.url.netloc.decode()
    if isinstance(failure, httpx.TimeoutException):
        return DeadlineError(f"{where} did not answer in time: {why}")
    if isinstance(failure, httpx.TransportError):
        return TransportError(f"{where} did not answer: {why}")
    return ServerError(f"{where} gave an answer that cannot be read: {why}")


def _said(answer: httpx.Response) -> Mapping[str, Any]:
    """The server's words: an object of its own routes, a text of the protocol's."""
    try:
        error = json.loads(answer.content)["error"]
    except (ValueError, LookupError, TypeError):
        return {}
    if isinstance(error, str):
        return {"message": error}
    return error if isinstance(error, dict) else {}


def _retry_after_s(headers: httpx.Headers) -> float | None:
    """Return when the server wants to be asked again: of two headers the one that is more exact."""
    exact = headers.get("retry-after-ms", "")
    if re.fullmatch(r"\d{1,12}(\.\d{0,12})?", exact, re.ASCII):
        return float(exact) / 1e3
    return _seconds(headers.get("retry-after"))


def _seconds(value: str | None) -> float | None:
    """What Retry-After says: seconds, or a date."""
    if value is None:
        return None
    try:
        return max(
            0.0, float(value) if value.strip().isdigit() else parsedate_to_datetime(value).timestamp() - time.time()
        )
    except ValueError:
        return None
