"""A request's body into memory, never more than allowed, and word when the client goes away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final, TypeVar

from starlette.requests import ClientDisconnect, Request

from app.errors import (
    DeadlineExceededError,
    InvalidRequestError,
    QueueFullError,
    RequestTooLargeError,
    ServiceError,
    UnsupportedMediaTypeError,
)
from app.memory.budget import Allowance
from app.wording import cut

T = TypeVar("T")

# Smaller bodies are parsed where they arrive, as are those of which only the type is looked at: a thread costs more.
INLINE_BYTES: Final = 64 * 1024
# Memory is asked for in steps of this: a body that was announced and never comes holds none.
_STEP: Final = 1 << 20
_MAX_DIGITS: Final = 19


class _Unread(ServiceError):
    """Mixed into errors that leave a body unread: they end the connection, because nobody reads what is still sent."""

    @property
    def headers(self) -> dict[str, str]:
        """Connection: close, and what else belongs to the status."""
        return {**super().headers, "Connection": "close"}


class BodyTooLargeError(_Unread, RequestTooLargeError):
    """The body is over its limit."""


class BodyTooLateError(_Unread, DeadlineExceededError):
    """The body did not arrive in time."""


class BodyNotNowError(_Unread, QueueFullError):
    """There is no memory for the body now."""


async def read_body(
    request: Request, limit: int, deadline: float, allowance: Allowance, encodings: Sequence[str] = ()
) -> bytearray:
    """The whole body, if it comes before the deadline on time.monotonic()'s clock.

    A body announced as too large is refused before a byte of it is read, so that a client that waits for
    "100 Continue" sends none. Memory is charged as it arrives.

    encodings: those it may be compressed with; it is not unpacked here.

    Raises:
        BodyTooLargeError: announced or found to be over the limit, or over all the memory there is for requests.
        BodyNotNowError: other requests hold that memory.
        UnsupportedMediaTypeError: compressed.
        InvalidRequestError: the client broke off.
        BodyTooLateError: it did not arrive in time.
    """
    encoding = request.headers.get("content-encoding", "identity")
    if encoding not in ("identity", *encodings):
        expected = " or ".join(encodings) or "none"
        raise UnsupportedMediaTypeError(
            f"Content-Encoding: found '{cut(encoding)}', expected {expected}", found=encoding
        )
    announced = request.headers.get("content-length", "")
    length = int(announced.lstrip("0")[:_MAX_DIGITS] or 0) if announced.isdigit() else 0
    if length > limit:
        raise _too_large(length, limit)
    try:
        async with asyncio.timeout(deadline - time.monotonic()):
            body = await _collect(request, limit, length, allowance)
            allowance.arrived()
            return body
    except ClientDisconnect:
        raise InvalidRequestError("the body ends early: the client broke off") from None
    except TimeoutError:
        raise BodyTooLateError("the body did not arrive within the request's time") from None


async def until_disconnect(request: Request, answer: asyncio.Task[T]) -> T:
    """The answer; when the client goes away first, the answer is cancelled, so that queued work is dropped.

    Raises:
        CancelledError: the client is gone.
    """
    watcher = asyncio.create_task(_cancel_on_disconnect(request, answer))
    try:
        return await answer
    finally:
        watcher.cancel()


async def _collect(request: Request, limit: int, announced: int, allowance: Allowance) -> bytearray:
    body, room = bytearray(), 0
    try:
        allowance.would_fit(announced, arriving=True)
        async for chunk in request.stream():
            size = len(body) + len(chunk)
            if size > limit:
                raise _too_large(size, limit)
            if size > room:
                step = max(size - room, min(_STEP, announced - room))
                allowance.charge(step, arriving=True)
                room += step
            body += chunk
    except QueueFullError as exc:
        raise BodyNotNowError(exc.message, retry_after_s=exc.retry_after_s, **exc.detail) from None
    except RequestTooLargeError as exc:
        raise BodyTooLargeError(exc.message, **exc.detail) from None
    return body


async def _cancel_on_disconnect(request: Request, answer: asyncio.Task[T]) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    answer.cancel()


def _too_large(found: int, limit: int) -> BodyTooLargeError:
    return BodyTooLargeError(
        f"the body is too large: found {found} bytes or more, expected at most {limit}", found=found, limit=limit
    )
