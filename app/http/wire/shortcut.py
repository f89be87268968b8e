"""One connection's side of the short way: from the bytes that came to those that are sent."""

from __future__ import annotations

import asyncio
from typing import Any, Final, Protocol

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE
from uvicorn.server import ServerState

from app.http.gate import TurnedAway
from app.http.wire.known import Known
from app.http.wire.request import Answered, ShortRequest
from app.http.wire.standin import StandIn
from app.http.wire.way import ShortWay

# Many clients send head and body by themselves, one right after the other.
_APART_S: Final = 0.005
# Longer answers are sent as their client takes them.
_AT_ONCE: Final = 1 << 17
# Shorter pieces are put together, which takes less than sending them.
_SHORT: Final = 1 << 14
_PIECE: Final = 1 << 20
_CLOSE: Final = (b"connection", b"close")


class Carrier(Protocol):
    """The connection."""

    loop: asyncio.AbstractEventLoop
    transport: Any
    flow: FlowControl
    server_state: ServerState
    tasks: set[asyncio.Task[None]]

    def takes(self, cycle: StandIn) -> None:
        """A request has come, and is being answered."""
        ...

    def took(self) -> None:
        """It is answered, all at once, and the next one may come."""
        ...

    def on_response_complete(self) -> None:
        """It is answered, after a while."""
        ...

    def refuse_gently(self, cycle: StandIn, away: TurnedAway) -> None:
        """It is not answered but refused."""
        ...

    def parse(self, data: bytes) -> None:
        """What goes no other way."""
        ...


class Shortcut:
    """Takes what a connection brings between two requests.

    Args:
        way: the server's.

    Attributes:
        learn: takes a head that was parsed, as the way has it.
    """

    __slots__ = ("_apart", "_carrier", "_timer", "_way", "learn")

    def __init__(self, carrier: Carrier, way: ShortWay) -> None:
        self._carrier = carrier
        self._way = way
        self.learn = way.learn
        # A head whose body is still to come, and how long it is waited for before the parser has it.
        self._apart: tuple[bytes, Known] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def take(self, data: bytes) -> bool:
        """Whether a piece is a whole request, or the head of one, or completes it, and goes this way."""
        if self._apart is not None:
            return self._complete(data)
        known = self._way.find(data)
        if known is None or self._carrier.flow.write_paused:
            return False
        if len(data) - known.head_bytes == known.body_bytes:
            return self._answer(known, data, known.head_bytes)
        if len(data) == known.head_bytes and known.said.limit_s is None:
            self._apart = data, known
            self._timer = self._carrier.loop.call_later(_APART_S, self.let_go)
            return True
        return False

    def let_go(self) -> None:
        """Let the parser have the head that waits for its body."""
        if self._apart is not None:
            head = self._apart[0]
            self.forget()
            self._carrier.parse(head)

    def forget(self) -> None:
        """Nothing is waited for."""
        self._apart = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def is_waiting(self) -> bool:
        """Whether there is a head without its body."""
        return self._apart is not None

    def _complete(self, data: bytes) -> bool:
        assert self._apart is not None
        known = self._apart[1]
        if len(data) == known.body_bytes and self._answer(known, data, 0):
            self.forget()
            return True
        self.let_go()
        return False

    def _answer(self, known: Known, piece: bytes, start: int) -> bool:
        """Answer a request whose body is the piece, from there on; no where that is for others to do."""
        way, carrier = self._way, self._carrier
        visit = way.visit(known)
        if visit is None:
            return False
        arrivals = way.arrivals
        if not arrivals.is_clear(visit.version):
            away = way.turn_away(visit, known, (piece, start))
            if away is not None:
                carrier.refuse_gently(StandIn(more_body=False), away if start else away.once())
                return True
        cycle = StandIn(more_body=False)
        carrier.takes(cycle)
        arrivals.begins_at_once(carrier.loop)
        request = way.request(known, visit, bytearray(memoryview(piece)[start:]))
        answered = request.now()
        if answered is not None and request.exchange.sent <= _AT_ONCE:
            self._send(cycle, answered)
            way.over(request)
            cycle.response_complete = True
            carrier.took()
        else:
            if answered is None:  # it asks for its place in the next turn of the loop, behind all that came in this one
                arrivals.comes(visit.version.lane)
                carrier.loop.call_soon(arrivals.begins, visit.version.lane)
            cycle.task = carrier.loop.create_task(self._finish(cycle, request, answered))
            cycle.task.add_done_callback(carrier.tasks.discard)
            carrier.tasks.add(cycle.task)
        return True

    def _send(self, cycle: StandIn, answered: Answered) -> None:
        """Send a short answer."""
        self._carrier.transport.write(b"".join([self._head(cycle, answered), *answered.pieces]))
        if not cycle.keep_alive:
            self._carrier.transport.close()

    async def _finish(self, cycle: StandIn, request: ShortRequest, answered: Answered | None) -> None:
        """Make the answer, if it is not made yet, and send it as the client takes it."""
        try:
            answered = answered or await request.later()
            await self._send_slowly(cycle, answered)
        except asyncio.CancelledError:
            if not cycle.disconnected:
                self._carrier.transport.close()
                raise
        finally:
            self._way.over(request)
        cycle.response_complete = True
        self._carrier.on_response_complete()

    async def _send_slowly(self, cycle: StandIn, answered: Answered) -> None:
        transport, flow = self._carrier.transport, self._carrier.flow
        held = self._head(cycle, answered)
        cycle.response_started = True
        for piece in answered.pieces:
            for start in range(0, len(piece), _PIECE):
                part = piece if len(piece) <= _PIECE else memoryview(piece)[start : start + _PIECE]
                if flow.write_paused:
                    await flow.drain()
                if cycle.disconnected or transport.is_closing():
                    return
                if len(part) < _SHORT:
                    held = b"".join((held, part))
                else:
                    transport.writelines((held, part) if held else (part,))
                    held = b""
        if flow.write_paused:
            await flow.drain()
        if cycle.disconnected or transport.is_closing():
            return
        if held:
            transport.write(held)
        if not cycle.keep_alive:
            transport.close()

    def _head(self, cycle: StandIn, answered: Answered) -> bytes:
        """An answer's first lines, as uvicorn writes them."""
        headers = [*self._carrier.server_state.default_headers, *answered.headers]
        lines = [STATUS_LINE[answered.status], *[b"%b: %b\r\n" % header for header in headers]]
        if _CLOSE in answered.headers:
            cycle.keep_alive = False
        elif not cycle.keep_alive:
            lines.append(b"connection: close\r\n")
        lines.append(b"\r\n")
        return b"".join(lines)
