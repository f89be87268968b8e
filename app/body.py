"""A request's body into memory, never more than allowed, and word when the client goes away."""

from __future__ import annotations

import asyncio
import time
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request

from app.errors import DeadlineExceededError, InvalidRequestError, RequestTooLargeError, UnsupportedMediaTypeError

T = TypeVar("T")


class _Unread:
    """Mixed into errors that leave a body unread: they end the connection, because nobody reads what is still sent."""

    @property
    def headers(self) -> dict[str, str]:
        """Connection: close."""
        return {"Connection": "close"}


class BodyTooLargeError(_Unread, RequestTooLargeError):
    """The body is over its limit."""


class BodyTooLateError(_Unread, DeadlineExceededError):
    """The body did not arrive in time."""


async def read_body(request: Request, limit: int, deadline: float) -> bytearray:
    """The whole body, if it comes before the deadline on time.monotonic()'s clock.

    A body announced as too large is refused before a byte of it is read, so that a client that waits for
    "100 Continue" sends none.

    Raises:
        BodyTooLargeError: announced or found to be over the limit.
        UnsupportedMediaTypeError: compressed.
        InvalidRequestError: the client broke off.
        BodyTooLateError: it did not arrive in time.
    """
    encoding = request.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise UnsupportedMediaTypeError(f"Content-Encoding: found '{encoding}', expected none", found=encoding)
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit:
        raise _too_large(int(announced), limit)
    try:
        async with asyncio.timeout(deadline - time.monotonic()):
            return await _collect(request, limit)
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


async def _collect(request: Request, limit: int) -> bytearray:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise _too_large(len(body), limit)
    return body


async def _cancel_on_disconnect(request: Request, answer: asyncio.Task[T]) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    answer.cancel()


def _too_large(found: int, limit: int) -> BodyTooLargeError:
    return BodyTooLargeError(
        f"the body is too large: found {found} bytes or more, expected at most {limit}", found=found, limit=limit
    )
