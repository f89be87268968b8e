"""Reading of requests in routes: the body within limits, headers, disconnects, and the app's data plane."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final, Generic, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from app.errors import (
    DeadlineExceededError,
    InvalidRequestError,
    QueueFullError,
    RequestTooLargeError,
    ServiceError,
    UnsupportedMediaTypeError,
)
from app.http.model_request import ModelRequest, Reply, WorkItem, answer, read_limit
from app.http.responses import ChargedResponse
from app.memory.reservation import Reservation
from app.messages import cut
from app.models.registry.version import Version
from app.models.request import InferRequest
from app.scheduling.job import DEFAULT_PRIORITY
from app.serving.dataplane import Answer, DataPlane

T = TypeVar("T")

# Smaller bodies are parsed on the event loop, as are those whose parsing only reads the type: a thread costs more.
INLINE_BYTES: Final = 64 * 1024
# Memory is charged in steps of this size, so that an announced body that never arrives holds none.
STEP: Final = 1 << 20
_MAX_DIGITS: Final = 19
# Key in ASGI's scope.
_FIRST_HEADERS: Final = "pnnx_serve.first_headers"


class _UnreadBodyError(ServiceError):
    """Base of errors that leave a body unread; they close the connection, since the rest of the body is not read."""

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers of the status, and `Connection: close`."""
        return {**super().headers, "Connection": "close"}


class BodyTooLargeError(_UnreadBodyError, RequestTooLargeError):
    """The body is over its limit."""


class BodyTooLateError(_UnreadBodyError, DeadlineExceededError):
    """The body did not arrive in time."""


class BodyNotNowError(_UnreadBodyError, QueueFullError):
    """There is currently no memory for the body."""


def client_disconnected() -> InvalidRequestError:
    """Return the error of a request whose client left before the body was complete."""
    return InvalidRequestError("the body is incomplete: the client disconnected")


def body_too_late() -> BodyTooLateError:
    """Return the error of a request whose body did not arrive in time."""
    return BodyTooLateError("the body did not arrive within the request's time")


class _NoRoom:
    """Context that converts errors; a class, since a generator would cost every body several more calls."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: object) -> None:
        if isinstance(exc, QueueFullError):
            raise BodyNotNowError(
                exc.message, retry_after_s=exc.retry_after_s, retry_after_ms=exc.retry_after_ms, **exc.detail
            ) from None
        if isinstance(exc, RequestTooLargeError):
            raise BodyTooLargeError(exc.message, **exc.detail) from None


_NO_ROOM: Final = _NoRoom()


def unread() -> AbstractContextManager[None]:
    """Return a context in which errors for lack of memory also close the connection."""
    return _NO_ROOM


class BodyRequest(Generic[T]):
    """Request whose body one function parses, in a form of another server; see `ModelRequest`.

    Args:
        plane: runs it.
        headers: of the request, the first of each name.
        read: parses the body, on the event loop or in a thread.
        resolve: returns version, request and encoder for what was parsed, on the event loop.
        version: the version that the head names; None if only the body does.
    """

    encodings: tuple[str, ...] = ()
    values_at: int = 0
    head_priority: int = DEFAULT_PRIORITY

    def __init__(
        self,
        plane: DataPlane,
        headers: Mapping[bytes, bytes],
        read: Callable[[bytearray], T],
        resolve: Callable[[T], tuple[Version, InferRequest, Callable[[Answer], Reply]]],
        version: Version | None = None,
    ) -> None:
        self._plane, self._read, self._resolve, self.version = plane, read, resolve, version
        self.deadline, self.encoding = plane.deadline(read_limit(headers)), encoding_of(headers)

    def is_short(self, body: bytearray) -> bool:
        """Return whether the body can be parsed on the event loop."""
        return len(body) <= INLINE_BYTES

    def work_item(self, body: bytearray) -> WorkItem:
        """Parse the body."""
        return WorkItem(*self._resolve(self._read(body)), self.deadline)

    async def work_item_in_thread(self, body: bytearray) -> WorkItem:
        """Parse the body in a thread."""
        if self.version is not None:
            self._plane.admit(self.version, self.deadline)
        parsed = await self._plane.offload(partial(self._read, body), self.deadline)
        return WorkItem(*self._resolve(parsed), self.deadline)


async def respond(request: Request, plane: DataPlane, model_request: ModelRequest) -> Response:
    """Return the answer to a request that runs a model and arrived by ASGI."""
    with plane.memory.answering() as reservation:
        limit = plane.settings.max_body_bytes
        body = await read_body(request, limit, model_request.deadline, reservation, model_request.encodings)
        reply = await until_disconnect(request, answer(plane, model_request, body))
    return ChargedResponse(reply.pieces, reservation, reply.media_type, reply.headers)


async def read_body(
    request: Request, limit: int, deadline: float, reservation: Reservation, encodings: Sequence[str] = ()
) -> bytearray:
    """Return the whole body if it arrives before the deadline on time.monotonic()'s clock.

    A body that is announced as too large is refused before it is read, so that a client that waits for "100 Continue"
    does not send it. Memory is charged as the body arrives.

    encodings: allowed compressions; the body is not decompressed here.

    Raises:
        BodyTooLargeError: announced or found to be over the limit, or over all memory for requests.
        BodyNotNowError: other requests hold that memory.
        UnsupportedMediaTypeError: compressed in another way.
        InvalidRequestError: the client disconnected.
        BodyTooLateError: it did not arrive in time.
    """
    head = first_headers(request)
    announced = head.get(b"content-length", b"").decode("latin-1")
    length = int(announced.lstrip("0")[:_MAX_DIGITS] or 0) if announced.isdigit() else 0
    check_announced(encoding_of(head), length, limit, encodings)
    try:
        async with asyncio.timeout(deadline - time.monotonic()):
            with unread():
                body = await _collect(request, limit, length, reservation)
            reservation.arrived()
            return body
    except ClientDisconnect:
        raise client_disconnected() from None
    except TimeoutError:
        raise body_too_late() from None


def encoding_of(head: Mapping[bytes, bytes]) -> str:
    """Return the compression of a body."""
    return head.get(b"content-encoding", b"identity").decode("latin-1")


def check_announced(encoding: str, length: int, limit: int, encodings: Sequence[str]) -> None:
    """Refuse a body by its request's head.

    Raises:
        BodyTooLargeError, UnsupportedMediaTypeError: as ``read_body``.
    """
    if encoding not in ("identity", *encodings):
        expected = " or ".join(encodings) or "none"
        raise UnsupportedMediaTypeError(
            f"Content-Encoding: found '{cut(encoding)}', expected {expected}", found=encoding
        )
    check_length(length, limit)


def check_length(length: int, limit: int) -> None:
    """Refuse a body of too many bytes.

    Raises:
        BodyTooLargeError: it is over the limit.
    """
    if length > limit:
        raise BodyTooLargeError(
            f"the body is too large: found {length} bytes or more, expected at most {limit}", found=length, limit=limit
        )


async def until_disconnect(request: Request, answer: Coroutine[Any, Any, T]) -> T:
    """Return the answer; cancel it if the client disconnects, so that queued work is dropped.

    Raises:
        CancelledError: the client has disconnected.
    """
    answering, is_gone = asyncio.current_task(), False
    assert answering is not None  # a request always runs in a task

    async def look() -> None:
        nonlocal is_gone
        while (await request.receive())["type"] != "http.disconnect":
            pass
        is_gone = True
        answering.cancel()

    looking = asyncio.create_task(look())
    try:
        return await answer
    except asyncio.CancelledError:
        if is_gone:  # the task continues, with another request or to count this one
            answering.uncancel()
        raise
    finally:
        looking.cancel()


def first_headers(request: Request) -> Mapping[bytes, bytes]:
    """Return a request's headers by name, cached; the first of several of one name."""
    found: Mapping[bytes, bytes] | None = request.scope.get(_FIRST_HEADERS)
    if found is None:
        found = request.scope[_FIRST_HEADERS] = dict(reversed([*request.scope["headers"]]))
    return found


async def _collect(request: Request, limit: int, announced: int, reservation: Reservation) -> bytearray:
    body, room = bytearray(), 0
    reservation.would_fit(announced, arriving=True)
    more = True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk, more = message.get("body", b""), message.get("more_body", False)
        size = len(body) + len(chunk)
        check_length(size, limit)
        if size > room:
            step = max(size - room, min(STEP, announced - room))
            reservation.charge(step, arriving=True)
            room += step
        body += chunk
    return body


def dataplane(request: Request) -> DataPlane:
    """Return the app's data plane."""
    plane = request.app.state.dataplane
    assert isinstance(plane, DataPlane)
    return plane
