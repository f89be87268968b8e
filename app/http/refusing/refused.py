"""One connection's requests that are refused: when they are told so, and what comes after."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from app.http.refusing.gate import Gate
from app.http.refusing.syscalls import ROOM_BYTES, Syscalls
from app.http.refusing.visits import Closed, Repeats, Target, TurnedAway
from app.http.wire.direct_reader import Flow
from app.http.wire.null_cycle import NullCycle

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

    def stands(self, cycle: NullCycle) -> None:
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

    __slots__ = (
        "_carrier",
        "_is_closing",
        "_gate",
        "_is_soon",
        "_repeats",
        "_told_at",
        "_unsent",
        "descriptor",
        "is_aside",
    )

    def __init__(self, carrier: Carrier, gate: Gate) -> None:
        self._carrier = carrier
        self._gate = gate
        self._repeats: Repeats | None = None
        self._told_at = float("-inf")
        self._is_soon = False
        # Whether it is left alone for a while, and not read. Then its socket, and what is asked of its transport.
        self.is_aside, self.descriptor = False, -1
        self._is_closing: Callable[[], bool] = bool
        self._unsent: Callable[[], int] = int

    def refuse(self, cycle: NullCycle, away: TurnedAway) -> None:
        """A request is answered with the next round; the connection goes on."""
        self._repeats = away.repeats
        self._carrier.stands(cycle)
        self._gate.pacing.join(partial(self._say, cycle, away.text))

    def again(self, data: bytes) -> bool:
        """Whether this is a whole request as the last one that was refused, and is so, too."""
        repeats = self._repeats
        if repeats is None or not self._carrier.is_between:
            return False
        text = self._gate.again(repeats, data)
        if text is None:
            return False
        self._is_soon = self._carrier.loop.time() - self._told_at < _SOON_S
        self.refuse(NullCycle(more_body=True), TurnedAway(text, is_last=False, repeats=repeats))
        return True

    @property
    def target(self) -> Target | None:
        """What it asked for when it was refused."""
        return None if self._repeats is None else self._repeats.target

    def asks(self) -> Closed | None:
        """What it is refused with, in a while, if what has come is what came before; None where there is room."""
        repeats = self._repeats
        if repeats is None or not self._carrier.is_between:
            return None
        return self._gate.closed(repeats.target, is_behind=True)

    def look(self, calls: Syscalls, now: float, closed: Closed | None = None) -> None:
        """Read what has come while it was left alone, and refuse it if it is the same once more.

        What is not is the connection's, which is read as others are from now on; as is what is not to be refused.
        """
        if not self.is_aside or self._is_closing():
            self.is_aside = False
            return
        if self._unsent():
            return  # it has not taken the last one
        count, repeats = calls.read(self.descriptor), self._repeats
        if closed is not None and repeats is not None and repeats.are(calls.room, count):
            text, self._told_at = closed.answer(), now
            sent = calls.write(self.descriptor, text)
            if sent < len(text):
                self._carrier.transport.write(text[max(0, sent) :])
            return
        self.come_back()
        if count > 0:
            self._carrier.data_received(bytes(memoryview(calls.room)[:count]))

    def come_back(self) -> None:
        """Have the connection read as others are."""
        was_aside, self.is_aside = self.is_aside, False
        if was_aside and not self._is_closing():
            self._gate.sideline.forget(self.descriptor)
            self._carrier.took()
            self._carrier.flow.resume_reading()

    def let_go(self) -> None:
        """Have what has come looked at now: the server stops."""
        if self.is_aside:
            self.look(Syscalls(), self._carrier.loop.time())

    def cut_off(self) -> None:
        """End the connection."""
        self._carrier.cut_off()

    def _say(self, refused: NullCycle, text: bytes) -> None:
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
            self._is_closing, self._unsent = carrier.transport.is_closing, carrier.transport.get_write_buffer_size
            self.descriptor = carrier.transport.get_extra_info("socket").fileno()
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
