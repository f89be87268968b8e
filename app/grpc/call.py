"""One call: who makes it, what came, how long it may take."""

from __future__ import annotations

import asyncio
import ipaddress
import time
from typing import Any
from urllib.parse import unquote

import grpc.aio

from app.access.keys import read_key
from app.errors import InvalidRequestError, RequestTimeoutError, RequestTooLargeError
from app.settings import Settings
from app.tracing.request import TracedRequest


class Call(TracedRequest):
    """A call of any method."""

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
        """The key it brings."""
        return read_key(self._headers)

    @property
    def is_local(self) -> bool:
        """Whether it comes from a program on this machine, and not from a page in a browser that runs there."""
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
        """When it must have been answered, on time.monotonic()'s clock: the client's deadline, where that is sooner."""
        left = self.context.time_remaining()
        return latest if left is None else min(latest, time.monotonic() + left)

    async def read(self, limit: int, within_s: float | None) -> bytes | None:
        """Its next message; None where there is no more.

        Raises:
            RequestTooLargeError: longer than that.
            RequestTimeoutError: it did not come in time.
        """
        try:
            async with asyncio.timeout(within_s):
                data = await self.context.read()
        except TimeoutError:
            raise RequestTimeoutError("the message did not arrive in time") from None
        if data is grpc.aio.EOF:
            return None
        assert isinstance(data, bytes)  # messages are not parsed on their way here
        self.received += len(data)
        if len(data) > limit:
            raise RequestTooLargeError(
                f"the message is too large: found {len(data)} bytes, expected at most {limit}",
                found=len(data),
                limit=limit,
            )
        return data

    async def read_one(self, limit: int) -> bytes:
        """The message of a call that has one.

        Raises:
            InvalidRequestError: it has none.
            RequestTooLargeError, RequestTimeoutError: as ``read`` says.
        """
        data = await self.read(limit, self.settings.body_timeout_s)
        if data is None:
            raise InvalidRequestError("the call has no message")
        return data
