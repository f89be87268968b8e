"""One connection's requests that are refused: when they are told so, and what comes after."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final, Protocol

from app.http.gate import Gate, Repeats, TurnedAway
from app.http.sideline import ROOM_BYTES, Reader
from app.http.wire.standin import StandIn
from app.http.wire.standing import Flow

# Who asks again within this time has not waited at all.
_SOON_S: Final = 0.1


class Carrier(Protocol):
    """The connection."""

    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport

    @property
    def flow(self) -> Flow:
        """What comes."""
        ...

    @property
    def is_between(self) -> bool:
        """Whether what comes is the beginning of a request, nothing else is under way, and others may follow."""
        ...

    @property
    def has_more(self) -> bool:
        """Whether there is something behind the request that has its answer, which would have to go on."""
        ...

    @property
    def can_be_bypassed(self) -> bool:
        """Whether the bytes on the wire are those of its requests."""
        ...

    @property
    def is_taking_its_answer(self) -> bool:
        """Whether there are bytes for the client on their way."""
        ...

    def stands(self, cycle: StandIn) -> None:
        """A request has come that nothing is made of."""
        ...

    def took(self) -> None:
        """It has its answer, and there is nothing behind it."""
        ...

    def on_response_complete(self) -> None:
        """It has its answer."""
        ...

    def data_received(self, data: bytes) -> None:
        """Bytes that have come."""
        ...

    def cut_off(self) -> None:
        """End it at once."""
        ...


class Refused:
    """What a connection keeps of them.

    Args:
        gate: the server's.
    """

    __slots__ = ("_carrier", "_gate", "_is_soon", "_repeats", "_told_at", "is_aside")

    def __init__(self, carrier: Carrier, gate: Gate) -> None:
        self._carrier = carrier
        self._gate = gate
        self._repeats: Repeats | None = None
        self._told_at = float("-inf")
        self._is_soon = False
        # Whether it is left alone for a while, and not read.
        self.is_aside = False

    def refuse(self, cycle: StandIn, away: TurnedAway) -> None:
        """A request is answered with the next round; the connection goes on."""
        self._repeats = away.repeats
        self._carrier.stands(cycle)
        self._gate.rounds.join(partial(self._say, cycle, away.text))

    def again(self, data: bytes) -> bool:
        """Whether this is a whole request as the last one that was refused, and is so, too."""
        repeats = self._repeats
        if repeats is None or not self._carrier.is_between:
            return False
        text = self._gate.again(repeats, data, len(data))
        if text is None:
            return False
        self._is_soon = self._carrier.loop.time() - self._told_at < _SOON_S
        self.refuse(StandIn(more_body=True), TurnedAway(text, is_last=False, repeats=repeats))
        return True

    def look(self, reader: Reader) -> bool:
        """Refuse what has come while it was left alone, where it is the same once more; whether it was."""
        carrier, repeats = self._carrier, self._repeats
        if carrier.transport.is_closing():
            return False
        if carrier.is_taking_its_answer:
            return True  # it has not taken the last one
        count = reader.read(_descriptor(carrier))
        if repeats is not None and count == repeats.size and carrier.is_between:
            text = self._gate.again(repeats, reader.room, count, is_behind=True)
            if text is not None:
                carrier.transport.write(text)
                carrier.took()
                return True
        self.is_aside = False
        carrier.flow.resume_reading()
        if count:
            carrier.data_received(bytes(memoryview(reader.room)[:count]))
        return False

    def let_go(self) -> None:
        """Have what has come looked at now: the server stops."""
        if self.is_aside and not self._carrier.transport.is_closing():
            self._repeats = None
            self.look(Reader())

    def cut_off(self) -> None:
        """End the connection."""
        self._carrier.cut_off()

    def _say(self, refused: StandIn, text: bytes) -> None:
        carrier = self._carrier
        if refused.disconnected or carrier.transport.is_closing():
            return
        refused.response_complete = True
        self._told_at = carrier.loop.time()
        carrier.transport.write(text)
        if not refused.keep_alive:
            carrier.transport.close()
        if carrier.has_more:
            carrier.on_response_complete()
            return
        carrier.took()  # most have nothing behind them
        if self._is_soon and self._may_be_left:
            self.is_aside, self._is_soon = True, False
            carrier.flow.pause_reading()
            self._gate.sideline.take(self)

    @property
    def _may_be_left(self) -> bool:
        repeats = self._repeats
        return (
            repeats is not None
            and repeats.size <= ROOM_BYTES
            and self._carrier.is_between
            and self._carrier.can_be_bypassed
        )


def _descriptor(carrier: Carrier) -> int:
    descriptor: int = carrier.transport.get_extra_info("socket").fileno()
    return descriptor
