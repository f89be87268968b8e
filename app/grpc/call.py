"""Calls, and what all methods have in common: access, limits, request id, log line, metrics, spans and errors.

Every method is registered as a stream, even with a single message, so that a call can be refused before its message is
read.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final
from urllib.parse import unquote

import grpc
import grpc.aio

from app.errors import (
    InternalError,
    InvalidRequestError,
    QueueFullError,
    RequestTimeoutError,
    RequestTooLargeError,
    RetryLaterError,
    ServiceError,
)
from app.keys import Group, Keys, read_key, refusal
from app.messages import safe_text
from app.settings import Settings
from app.tracing.request import Spans, TracedRequest, server_timing


class Call(TracedRequest):
    """Call of any method."""

    def __init__(self, context: Any, settings: Settings) -> None:
        self.context = context
        self.settings = settings
        self._headers = [
            (key.encode(), value if isinstance(value, bytes) else value.encode("utf-8", "replace"))
            for key, value in context.invocation_metadata() or ()
        ]
        super().__init__(self._headers)

    @property
    def key(self) -> bytes | None:
        """Return the key of the call."""
        return read_key(self._headers)

    @property
    def is_local(self) -> bool:
        """Return whether the call comes from a program on this machine, and not from a page in a browser."""
        if any(key == b"origin" for key, _ in self._headers):
            return False
        kind, _, address = unquote(self.context.peer()).partition(":")
        if kind == "unix":
            return True
        try:
            return ipaddress.ip_address(address.rpartition(":")[0].strip("[]")).is_loopback
        except ValueError:
            return False

    def deadline(self, latest: float) -> float:
        """Return the deadline on time.monotonic()'s clock: the client's, or latest if that is sooner."""
        left = self.context.time_remaining()
        return latest if left is None else min(latest, time.monotonic() + left)

    async def read(self, limit: int, within_s: float | None) -> bytes | None:
        """Return the next message, or None at the end.

        Raises:
            RequestTooLargeError: the message is longer than limit.
            RequestTimeoutError: it did not arrive in time.
        """
        try:
            async with asyncio.timeout(within_s):
                data = await self.context.read()
        except TimeoutError:
            raise RequestTimeoutError("the message did not arrive in time") from None
        if data is grpc.aio.EOF:
            return None
        assert isinstance(data, bytes)  # gRPC does not parse messages here
        self.received += len(data)
        if len(data) > limit:
            raise RequestTooLargeError(
                f"the message is too large: found {len(data)} bytes, expected at most {limit}",
                found=len(data),
                limit=limit,
            )
        return data

    async def read_one(self, limit: int) -> bytes:
        """Return the only message of a call.

        Raises:
            InvalidRequestError: there is none.
            RequestTooLargeError, RequestTimeoutError: as ``read``.
        """
        data = await self.read(limit, self.settings.body_timeout_s)
        if data is None:
            raise InvalidRequestError("the call has no message, expected one")
        return data


log = logging.getLogger(__name__)
access = logging.getLogger("app.access")

# Share of grpc_max_calls for streams, which may stay open for any time.
_STREAMS: Final = 1 / 2
# A probe, as are the methods without access control: neither logged nor traced.
_READY: Final = "/ModelReady"

Answer = Callable[[Call], Awaitable[bytes]]
_CODES: Final = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    413: grpc.StatusCode.INVALID_ARGUMENT,  # it never fits: clients retry after RESOURCE_EXHAUSTED
    422: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
# Characters of an error message. It is sent as metadata, of which clients accept 8 kB; a character that is not ASCII
# takes up to twelve bytes.
_DETAILS: Final = 2_000
_DETAILS_NOT_ASCII: Final = 300


class CallHandlers:
    """Wrapper of all methods.

    Args:
        settings: limits and logging.
        keys: None without keys.
        codes: counts calls by status code.
        spans: recorder of spans, or None.
    """

    def __init__(self, settings: Settings, keys: Keys | None, codes: Counter[str], spans: Spans | None = None) -> None:
        self._settings = settings
        self._keys = keys
        self._codes = codes
        self._spans = spans
        self._open = self._streams = 0

    @property
    def open(self) -> int:
        """Return the number of calls in progress."""
        return self._open

    def handler(self, path: str, groups: Sequence[Group], answer: Answer, *, is_stream: bool = False) -> Any:
        """Return the handler that gRPC calls for a method.

        Args:
            path: full name of the method.
            groups: the caller needs one of them; none means no access control.
            answer: returns the bytes of the only answer; for a stream it writes all answers itself.
            is_stream: whether the call has several messages.
        """

        async def handle(_: Any, context: Any) -> bytes:
            return await self._handle(path, groups, answer, is_stream, context)

        make = grpc.stream_stream_rpc_method_handler if is_stream else grpc.stream_unary_rpc_method_handler
        return make(handle)

    def check(self, call: Call, *groups: Group) -> None:
        """Check that a call may do one of these things; without groups every call may.

        Raises:
            UnauthorizedError, ForbiddenError: it may not.
        """
        found = None
        for group in groups:
            is_local = group is Group.ADMIN and self._keys is None and call.is_local
            found = refusal(self._keys, group, None if self._keys is None else call.key, is_local=is_local)
            if found is None:
                return
        if found is not None:
            raise found

    async def _handle(self, path: str, groups: Sequence[Group], answer: Answer, is_stream: bool, context: Any) -> bytes:
        call = Call(context, self._settings)
        is_probe = not groups or path.endswith(_READY)
        spans = None if is_probe else self._spans
        if spans is not None:
            call.begin_trace()
        call.enter()  # it runs in a task, and so in a context, of its own
        code, answered = grpc.StatusCode.CANCELLED, b""
        self._open += 1
        self._streams += is_stream
        try:
            self._admit(bool(groups), is_stream)
            self.check(call, *groups)
            answered = await answer(call)
            call.sent += len(answered)
            code = _close(call, None)
        except ServiceError as error:
            code = _close(call, error)
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("%s failed", path)
            message = f"internal error; see the server's log, request id {call.id}"
            code = _close(call, InternalError(message))
        finally:
            self._open -= 1
            self._streams -= is_stream
            self._codes[code.name] += 1
            if spans is not None:
                _record(spans, call, path, code)
            if self._settings.access_log and not is_probe:
                access.info("gRPC %s %s", path, code.name, extra=call.fields())
        return answered

    def _admit(self, is_bounded: bool, is_stream: bool) -> None:
        """Admit a call within the limits; probes are always admitted.

        Raises:
            QueueFullError: too many calls or streams are open.
        """
        limit = self._settings.grpc_max_calls
        if is_bounded and self._open > limit:
            raise self._full(self._open - 1, "calls", limit)
        if is_stream and self._streams > max(1, int(limit * _STREAMS)):
            raise self._full(self._streams - 1, "streams", max(1, int(limit * _STREAMS)))

    def _full(self, found: int, what: str, limit: int) -> QueueFullError:
        return QueueFullError(
            f"the server is busy: {found} {what} are open, expected at most {limit}",
            limit=limit,
        )


def _record(spans: Spans, call: Call, path: str, code: Any) -> None:
    """Record a call's span."""
    _, service, method = path.split("/")
    attributes = {
        "rpc.system": "grpc",
        "rpc.service": service,
        "rpc.method": method,
        "rpc.grpc.status_code": code.value[0],
    }
    spans.record(call, method, attributes, is_failed=code is grpc.StatusCode.INTERNAL)


def _close(call: Call, error: ServiceError | None) -> Any:
    """Set the status and metadata of a call that ends, and return its status code."""
    metadata = [("x-request-id", call.id)]
    if call.trace is not None and call.trace.parent is not None:
        metadata.append(("traceparent", call.trace.header().decode()))
    if call.account.timing is not None:
        metadata.append(("server-timing", server_timing(call.account.timing).decode()))
    code = grpc.StatusCode.OK
    if error is not None:
        code = code_of(error)
        call.context.set_code(code)
        call.context.set_details(details_of(error))
        metadata += metadata_of(error)
    call.context.set_trailing_metadata(tuple(metadata))
    return code


def code_of(error: ServiceError) -> Any:
    """Return the gRPC status code of an error."""
    other = grpc.StatusCode.INVALID_ARGUMENT if error.status < 500 else grpc.StatusCode.INTERNAL
    return _CODES.get(error.status, other)


def details_of(error: ServiceError) -> str:
    """Return the message of an error, cut to fit the metadata."""
    return safe_text(error.message, _DETAILS if error.message.isascii() else _DETAILS_NOT_ASCII)


def metadata_of(error: ServiceError) -> tuple[tuple[str, str], ...]:
    """Return the retry delay of an error, for gRPC's own retries and as in HTTP."""
    if not isinstance(error, RetryLaterError):
        return ()
    exact_ms = error.retry_after_s * 1000 if error.retry_after_ms is None else math.ceil(error.retry_after_ms)
    return ("grpc-retry-pushback-ms", str(exact_ms)), ("retry-after", str(error.retry_after_s))
