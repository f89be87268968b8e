"""The last answer of a connection that the server ends, and the while in which its client may still take it."""

from __future__ import annotations

import asyncio
import secrets
from typing import Final, Protocol

from app.codec.answers import dump_json
from app.errors import ServiceError
from app.http.door import Door
from app.http.raw import json_answer
from app.http.wire.coming import Coming
from app.http.wire.standing import Flow

# How long, and for how many bytes, a refused client may go on sending: an end in the midst of it could lose the answer.
_LINGER_S: Final = 2.0
_LINGER_BYTES: Final = 4 * 2**20


class Carrier(Protocol):
    """The connection."""

    peer: str | None
    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport

    @property
    def flow(self) -> Flow:
        """What comes."""
        ...

    @property
    def is_taking_its_answer(self) -> bool:
        """Whether there are bytes for the client on their way."""
        ...

    def check(self, now: float) -> None:
        """End what takes too long."""
        ...

    def leave(self) -> None:
        """Make room for another connection."""
        ...

    def cut_off(self) -> None:
        """End at once."""
        ...


class Parting:
    """One connection's end.

    Attributes:
        is_deaf: whether nothing that comes is read any more.
        farewell: the error to end with, once what came before it is answered.
        lingers: whether all was said.
    """

    __slots__ = ("_carrier", "_coming", "_door", "_until", "farewell", "is_deaf")

    def __init__(self, carrier: Carrier, coming: Coming, door: Door) -> None:
        self._carrier = carrier
        self._coming = coming
        self._door = door
        self._until = 0.0
        self.is_deaf = False
        self.farewell: ServiceError | None = None

    @property
    def lingers(self) -> bool:
        """Whether the last answer was sent."""
        return self._until > 0

    def turns_deaf(self) -> None:
        """Read nothing more."""
        self.is_deaf, self._coming.raw = True, 0

    def drops(self, count: int) -> None:
        """So many bytes have come that nobody reads."""
        self._coming.raw += count
        if self._coming.raw > _LINGER_BYTES:
            self._carrier.cut_off()

    def say(self, error: ServiceError) -> None:
        """Send the error as the last answer."""
        self._door.refusals[error.code] += 1
        headers = {**error.headers, "connection": "close"}
        self.end_with(json_answer(error.status, dump_json(error.body()), secrets.token_hex(8), headers))

    def end_with(self, text: bytes) -> None:
        """Send the last answer, and wait a little for the client to take it before the connection ends."""
        carrier = self._carrier
        carrier.transport.write(text)
        self._door.waits(carrier)
        self._until = carrier.loop.time() + _LINGER_S
        if carrier.transport.can_write_eof():
            carrier.transport.write_eof()
        carrier.flow.resume_reading()

    def check(self, now: float, *, is_taking: bool) -> None:
        """End the connection, if its client has had the time to take the last answer.

        is_taking: whether it is at it.
        """
        if is_taking:
            self._until = now + _LINGER_S
        elif now > self._until:
            self._carrier.cut_off()
