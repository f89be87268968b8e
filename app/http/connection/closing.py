"""The end of a connection by the server: the last answer, and a lingering close in which the client may read it."""

from __future__ import annotations

import asyncio
import secrets
from typing import Final, Protocol

from app.codec.answers import dump_json
from app.errors import ServiceError
from app.http.connection.admission import Admission, Admitted
from app.http.connection.incoming import Incoming
from app.http.wire.direct_reader import Flow
from app.http.wire.raw import json_answer

# How long, and for how many bytes, a refused client may go on sending: closing with unread bytes would reset the
# connection, and the answer could be lost.
_LINGER_S: Final = 2.0
_LINGER_BYTES: Final = 4 * 2**20


class Carrier(Admitted, Protocol):
    """The connection."""

    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport

    @property
    def flow(self) -> Flow:
        """Pauses and resumes reading."""
        ...


class Closing:
    """One connection's end.

    Attributes:
        is_deaf: whether all that comes is dropped.
        farewell: the error to end with, once the requests before it are answered.
        lingers: whether the last answer was sent.
    """

    __slots__ = ("_carrier", "_incoming", "_admission", "_until", "farewell", "is_deaf")

    def __init__(self, carrier: Carrier, incoming: Incoming, admission: Admission) -> None:
        self._carrier = carrier
        self._incoming = incoming
        self._admission = admission
        self._until = 0.0
        self.is_deaf = False
        self.farewell: ServiceError | None = None

    @property
    def lingers(self) -> bool:
        """Whether the last answer was sent."""
        return self._until > 0

    def turns_deaf(self) -> None:
        """Drop all that comes from now on."""
        self.is_deaf, self._incoming.raw = True, 0

    def drops(self, count: int) -> None:
        """So many bytes have come and were dropped."""
        self._incoming.raw += count
        if self._incoming.raw > _LINGER_BYTES:
            self._carrier.cut_off()

    def say(self, error: ServiceError) -> None:
        """Send the error as the last answer."""
        self._admission.refusals[error.code] += 1
        headers = {**error.headers, "connection": "close"}
        self.end_with(json_answer(error.status, dump_json(error.body()), secrets.token_hex(8), headers))

    def end_with(self, text: bytes) -> None:
        """Send the last answer, and wait a little for the client to read it before the connection is closed."""
        carrier = self._carrier
        carrier.transport.write(text)
        self._admission.waits(carrier)
        self._until = carrier.loop.time() + _LINGER_S
        if carrier.transport.can_write_eof():
            carrier.transport.write_eof()
        carrier.flow.resume_reading()

    def check(self, now: float, *, is_taking: bool) -> None:
        """Close the connection, if its client has had the time to read the last answer.

        is_taking: whether it is still reading.
        """
        if is_taking:
            self._until = now + _LINGER_S
        elif now > self._until:
            self._carrier.cut_off()
