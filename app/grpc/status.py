"""What gRPC calls the errors of app/errors.py."""

from __future__ import annotations

from typing import Any, Final

import grpc

from app.errors import RetryLaterError, ServiceError
from app.wording import told

_CODES: Final = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    413: grpc.StatusCode.INVALID_ARGUMENT,  # it fits at no time: RESOURCE_EXHAUSTED would invite another try
    422: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
# They are sent as metadata, of which clients take 8 kB; what is not ASCII takes up to twelve bytes a character.
_DETAILS: Final = 2_000
_DETAILS_NOT_ASCII: Final = 300


def code_of(error: ServiceError) -> Any:
    """The status code of an error."""
    other = grpc.StatusCode.INVALID_ARGUMENT if error.status < 500 else grpc.StatusCode.INTERNAL
    return _CODES.get(error.status, other)


def details_of(error: ServiceError) -> str:
    """What its client is told."""
    return told(error.message, _DETAILS if error.message.isascii() else _DETAILS_NOT_ASCII)


def metadata_of(error: ServiceError) -> tuple[tuple[str, str], ...]:
    """What belongs to it: when to come again, as gRPC's own retries understand it, and as HTTP says it."""
    if not isinstance(error, RetryLaterError):
        return ()
    seconds = error.retry_after_s
    return ("grpc-retry-pushback-ms", str(seconds * 1000)), ("retry-after", str(seconds))
