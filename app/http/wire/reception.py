"""The body of a request, read without ASGI where the server's own connection carries it.

ASGI hands a body over in pieces, each the copy of a copy. Here the reader gets the whole body at once if it has come,
and the rest of a long one is read from the socket straight to where it stays.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from starlette.requests import ClientDisconnect
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from app.http.wire.direct_reader import ConnectionEvents, DirectReader

# The key of the ASGI scope that holds it.
RECEPTION: Final = "pnnx_serve.reception"
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class Carrier(ConnectionEvents, Protocol):
    """A connection, as the reception sees it."""

    flow: FlowControl
    transport: asyncio.Transport

    @property
    def can_be_bypassed(self) -> bool:
        """Whether the bytes on the wire are those of the body."""
        ...

    def take_ahead(self) -> memoryview | None:
        """What came of the body with the head, if the parser has not had it."""
        ...

    def bypass(self, funnel: Funnel) -> None:
        """The parser gets no more of this body."""
        ...

    def passed(self, count: int) -> None:
        """So many bytes have come past the parser."""
        ...

    def resume(self) -> None:
        """The body is complete: what comes is for the parser again."""
        ...

    def give_up(self) -> None:
        """Nobody reads the rest of the body."""
        ...


class Funnel(DirectReader):
    """The transport's protocol while one part of a body is read.

    Attributes:
        is_full: whether all of them have come; an error where none will come any more.
    """

    def __init__(self, carrier: Carrier, room: memoryview) -> None:
        super().__init__(carrier, room)
        self.is_full: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._carrier = carrier

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes were read."""
        is_full = self.advance(nbytes)
        self._carrier.passed(nbytes)
        if is_full:
            self.leave()
            if not self.is_full.done():
                self.is_full.set_result(None)

    def leave(self) -> None:
        """Make the connection the transport's protocol again; nothing is read until somebody resumes reading."""
        self._carrier.flow.pause_reading()
        self._carrier.transport.set_protocol(self._carrier)  # type: ignore[arg-type]  # a connection is a protocol

    def stop(self) -> None:
        """The rest of the body will not come."""
        if not self.is_full.done():
            self.is_full.set_exception(ClientDisconnect())


class Reception:
    """The body of one request, as far as it was not handed over by ASGI.

    Attributes:
        taken: bytes of it that were handed over here.
    """

    __slots__ = ("_carrier", "_cycle", "_left", "taken")

    def __init__(self, carrier: Carrier, cycle: RequestResponseCycle) -> None:
        self._carrier = carrier
        self._cycle = cycle
        self._left = 0
        self.taken = 0

    def whole(self) -> bytearray | None:
        """All of it, if all has come."""
        cycle = self._cycle
        if cycle.more_body or cycle.disconnected:
            return None
        self._carrier.flow.resume_reading()
        return self._take()

    def begin(self, length: int) -> bytearray | memoryview | None:
        """What has come of a body of so many bytes, the rest of which ``fill`` receives; None where it cannot."""
        cycle = self._cycle
        if not cycle.more_body or cycle.disconnected or not self._carrier.can_be_bypassed:
            return None
        if cycle.waiting_for_100_continue:
            self._carrier.transport.write(_CONTINUE)
            cycle.waiting_for_100_continue = False
        found: bytearray | memoryview = self._take()
        if (ahead := self._carrier.take_ahead()) is not None:
            found = ahead
            self.taken += len(found)
        self._left = length - len(found)
        return found

    async def fill(self, room: memoryview) -> None:
        """Receive as many of the bytes that are left as there is room for.

        Raises:
            ClientDisconnect: they do not come.
        """
        if self._cycle.disconnected:
            raise ClientDisconnect
        funnel = Funnel(self._carrier, room)
        self._carrier.bypass(funnel)
        try:
            await funnel.is_full
        except BaseException:
            self._carrier.give_up()
            raise
        self.taken += len(room)
        self._left -= len(room)
        if not self._left:
            self._carrier.resume()

    def _take(self) -> bytearray:
        body, self._cycle.body = self._cycle.body, bytearray()
        self.taken += len(body)
        return body
