"""What a connection reads, once it has had a long body on the short way: bytes go from its socket to their place.

asyncio hands bytes over in objects of their own, each the copy of a copy. Here a body lands where it stays; heads, and
all else, land in one buffer that a server's connections share, for each is looked at before the next one is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from app.http.wire.standing import Flow, Hearer, Standing

# What is read at once where nobody waits for a body.
ROOM_BYTES: Final = 1 << 16


class Carrier(Hearer, Protocol):
    """The connection."""

    transport: Any

    @property
    def flow(self) -> Flow:
        """What comes."""
        ...

    def data_received(self, data: bytes) -> None:
        """Bytes that nobody waits for."""
        ...

    def passed(self, count: int) -> None:
        """So many bytes of a body have come to their place."""
        ...


class Inlet(Standing):
    """Stands for a connection where its transport looks for it.

    Args:
        shared: where heads are read to.
    """

    def __init__(self, carrier: Carrier, shared: memoryview) -> None:
        super().__init__(carrier)
        self._carrier = carrier
        self._shared = self._room = shared
        self._is_full: Callable[[], None] | None = None

    def fill(self, room: memoryview, is_full: Callable[[], None]) -> None:
        """Have the next bytes read to their place; called back when it is full."""
        self._room, self._is_full = room, is_full
        transport, flow = self._carrier.transport, self._carrier.flow
        if transport.get_protocol() is not self:
            flow.pause_reading()  # before: who reads already reads as it began
            transport.set_protocol(self)
            flow.resume_reading()

    def leave(self) -> None:
        """What comes now is for the connection."""
        self._room, self._is_full = self._shared, None

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        """So many have come."""
        is_full = self._is_full
        if is_full is None:
            self._carrier.data_received(bytes(self._room[:nbytes]))
            return
        self._carrier.passed(nbytes)
        self._room = self._room[nbytes:]
        if not self._room:
            self.leave()
            is_full()
