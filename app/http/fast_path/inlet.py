"""How a connection reads once it has had a long body on the fast path: bytes go from its socket to where they stay.

asyncio hands bytes over in objects of their own, each the copy of a copy. Here a body lands where it stays; heads, and
all else, land in one buffer that a server's connections share, for each is looked at before the next one is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from app.http.wire.direct_reader import ConnectionEvents, DirectReader, Flow

# What is read at once where nobody waits for a body.
ROOM_BYTES: Final = 1 << 16


class Carrier(ConnectionEvents, Protocol):
    """The connection."""

    transport: Any

    @property
    def flow(self) -> Flow:
        """Pauses and resumes reading."""
        ...

    def data_received(self, data: bytes) -> None:
        """Bytes that no body waits for: the beginning of a request."""
        ...

    def passed(self, count: int) -> None:
        """So many bytes of a body have been read to where they stay."""
        ...


class Inlet(DirectReader):
    """The transport's protocol, for the rest of a connection's life.

    Args:
        shared: the buffer that heads are read to.
    """

    def __init__(self, carrier: Carrier, shared: memoryview) -> None:
        super().__init__(carrier, shared)
        self._carrier = carrier
        self._shared = shared
        self._is_full: Callable[[], None] | None = None

    def fill(self, room: memoryview, is_full: Callable[[], None]) -> None:
        """Have the next bytes read to ``room``; ``is_full`` is called when it is full."""
        self._room, self._is_full = room, is_full
        transport, flow = self._carrier.transport, self._carrier.flow
        if transport.get_protocol() is not self:
            flow.pause_reading()  # before: who reads already reads as it began
            transport.set_protocol(self)
            flow.resume_reading()

    def leave(self) -> None:
        """What is read from now on is for the connection."""
        self._room, self._is_full = self._shared, None

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes were read."""
        is_full = self._is_full
        if is_full is None:
            self._carrier.data_received(bytes(self._room[:nbytes]))
            return
        self._carrier.passed(nbytes)
        if self.advance(nbytes):
            self.leave()
            is_full()
