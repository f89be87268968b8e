"""A request's body into memory, never more than allowed, and word when the client goes away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, TypeVar

from starlette.requests import ClientDisconnect, Request

from app.errors import (
    DeadlineExceededError,
    InvalidRequestError,
    QueueFullError,
    RequestTooLargeError,
    ServiceError,
    UnsupportedMediaTypeError,
)
from app.http.wire.reception import RECEPTION, Reception
from app.memory.allowance import Allowance
from app.memory.blank import unwritten
from app.wording import cut

T = TypeVar("T")

# Smaller bodies are parsed where they arrive, as are those of which only the type is looked at: a thread costs more.
INLINE_BYTES: Final = 64 * 1024
# Memory is asked for in steps of this: a body that was announced and never comes holds none.
STEP: Final = 1 << 20
_MAX_DIGITS: Final = 19
# Shorter ones come in one piece, mostly.
_LONG: Final = 1 << 16
# To look for the end of a connection takes a task: nobody does for answers that come sooner.
_UNWATCHED_S: Final = 0.005
# Of ASGI's scope.
_FIRST_HEADERS: Final = "pnnx_serve.first_headers"


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


def broken_off() -> InvalidRequestError:
    """What is counted of a request whose client went away in the midst of it."""
    return InvalidRequestError("the body ends early: the client broke off")


def too_late() -> BodyTooLateError:
    """What is said to a client that takes too long."""
    return BodyTooLateError("the body did not arrive within the request's time")


class _NoRoom:
    """As a class, for a generator would cost every body several calls more."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: object) -> None:
        if isinstance(exc, QueueFullError):
            raise BodyNotNowError(exc.message, retry_after_s=exc.retry_after_s, **exc.detail) from None
        if isinstance(exc, RequestTooLargeError):
            raise BodyTooLargeError(exc.message, **exc.detail) from None


_NO_ROOM: Final = _NoRoom()


def unread() -> AbstractContextManager[None]:
    """Errors for want of memory end the connection as well."""
    return _NO_ROOM


async def read_body(
    request: Request,
    limit: int,
    deadline: float,
    allowance: Allowance,
    encodings: Sequence[str] = (),
    *,
    values_at: int = 0,
) -> bytearray:
    """The whole body, if it comes before the deadline on time.monotonic()'s clock.

    A body announced as too large is refused before a byte of it is read, so that a client that waits for
    "100 Continue" sends none. Memory is charged as it arrives.

    encodings: those it may be compressed with; it is not unpacked here.
    values_at: where in it the values of a tensor begin, which are put where every dtype may lie, if that is free.

    Raises:
        BodyTooLargeError: announced or found to be over the limit, or over all the memory there is for requests.
        BodyNotNowError: other requests hold that memory.
        UnsupportedMediaTypeError: compressed.
        InvalidRequestError: the client broke off.
        BodyTooLateError: it did not arrive in time.
    """
    head = first_headers(request)
    encoding = head.get(b"content-encoding", b"identity").decode("latin-1")
    if encoding not in ("identity", *encodings):
        expected = " or ".join(encodings) or "none"
        raise UnsupportedMediaTypeError(
            f"Content-Encoding: found '{cut(encoding)}', expected {expected}", found=encoding
        )
    announced = head.get(b"content-length", b"").decode("latin-1")
    length = int(announced.lstrip("0")[:_MAX_DIGITS] or 0) if announced.isdigit() else 0
    if length > limit:
        raise _too_large(length, limit)
    reception: Reception | None = request.scope.get(RECEPTION)
    try:
        if reception is not None and (whole := reception.whole()) is not None:
            charge_whole(whole, limit, allowance)
            return whole
        async with asyncio.timeout(deadline - time.monotonic()):
            with unread():
                body = None
                if reception is not None and length >= _LONG:
                    body = await _fill(reception, length, allowance, values_at)
                if body is None:
                    body = await _collect(request, limit, length, allowance)
            allowance.arrived()
            return body
    except ClientDisconnect:
        raise broken_off() from None
    except TimeoutError:
        raise too_late() from None


def charge_whole(body: bytearray, limit: int, allowance: Allowance) -> None:
    """Count a body that is there.

    Raises:
        BodyTooLargeError, BodyNotNowError: as ``read_body`` says.
    """
    if len(body) > limit:
        raise _too_large(len(body), limit)
    if not allowance.charge_arrived(len(body)):
        with unread():
            allowance.charge(len(body), arriving=True)
        allowance.arrived()


async def until_disconnect(request: Request, answer: Coroutine[Any, Any, T]) -> T:
    """The answer; when the client goes away first, it is cancelled, so that queued work is dropped.

    Most answers are there before anybody would look.

    Raises:
        CancelledError: the client is gone.
    """
    watch = _Watch(request)
    try:
        return await answer
    except asyncio.CancelledError:
        watch.forgive()
        raise
    finally:
        watch.end()


def first_headers(request: Request) -> Mapping[bytes, bytes]:
    """A request's headers by name, of several of one name the first: made once, whoever asks."""
    found: Mapping[bytes, bytes] | None = request.scope.get(_FIRST_HEADERS)
    if found is None:
        found = request.scope[_FIRST_HEADERS] = dict(reversed([*request.scope["headers"]]))
    return found


class _Watch:
    """Cancels the task that answers a request when its client goes away; looks from a little later on."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._answering = asyncio.current_task()
        self._is_gone = False
        self._looking: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(_UNWATCHED_S, self._begin)

    def end(self) -> None:
        """The answer is there, or none will be."""
        self._timer.cancel()
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None  # it refers to the watch

    def forgive(self) -> None:
        """The task goes on after it was cancelled: with another request, or to count this one."""
        if self._is_gone and self._answering is not None:
            self._answering.uncancel()

    def _begin(self) -> None:
        self._looking = asyncio.create_task(self._look())

    async def _look(self) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            pass
        if self._answering is not None:
            self._is_gone = True
            self._answering.cancel()


async def _collect(request: Request, limit: int, announced: int, allowance: Allowance) -> bytearray:
    body, room = bytearray(), 0
    allowance.would_fit(announced, arriving=True)
    more = True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk, more = message.get("body", b""), message.get("more_body", False)
        size = len(body) + len(chunk)
        if size > limit:
            raise _too_large(size, limit)
        if size > room:
            step = max(size - room, min(STEP, announced - room))
            allowance.charge(step, arriving=True)
            room += step
        body += chunk
    return body


async def _fill(reception: Reception, length: int, allowance: Allowance, values_at: int) -> bytearray | None:
    """A body of that length, the rest of it read from the socket to its place; None where that cannot be."""
    allowance.would_fit(length, arriving=True)
    begun = reception.begin(length)
    if begun is None:
        return None
    allowance.charge(len(begun), arriving=True)
    body = unwritten(length, values_at)
    whole, have = memoryview(body), len(begun)
    whole[:have] = begun
    while have < length:
        step = min(STEP, length - have)
        allowance.charge(step, arriving=True)
        await reception.fill(whole[have : have + step])
        have += step
    return body


def _too_large(found: int, limit: int) -> BodyTooLargeError:
    return BodyTooLargeError(
        f"the body is too large: found {found} bytes or more, expected at most {limit}", found=found, limit=limit
    )
