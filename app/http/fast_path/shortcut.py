"""One connection's side of the fast path: from the bytes that came to those that are sent."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, Protocol

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.server import ServerState

from app.errors import ServiceError
from app.http.body import INLINE_BYTES
from app.http.fast_path.body import Arriving
from app.http.fast_path.fast_path import FastPath
from app.http.fast_path.heads import KnownHead
from app.http.fast_path.inlet import Inlet
from app.http.fast_path.request import Answered, FastRequest
from app.http.fast_path.sending import send, send_slowly
from app.http.refusing.visits import TurnedAway
from app.http.wire.direct_reader import ConnectionEvents
from app.http.wire.null_cycle import NullCycle

# Many clients send head and body by themselves, one right after the other.
_APART_S: Final = 0.005
# Longer answers are sent as their client takes them.
_AT_ONCE: Final = 1 << 20


class Carrier(ConnectionEvents, Protocol):
    """The connection."""

    loop: asyncio.AbstractEventLoop
    transport: Any
    flow: FlowControl
    server_state: ServerState
    tasks: set[asyncio.Task[None]]

    def takes(self, cycle: NullCycle) -> None:
        """A request has come, and is being answered."""
        ...

    def took(self) -> None:
        """It is answered, all at once, and the next one may come."""
        ...

    def on_response_complete(self) -> None:
        """It is answered, after a while."""
        ...

    def refuse_gently(self, cycle: NullCycle, away: TurnedAway) -> None:
        """It is not answered but refused."""
        ...

    def parse(self, data: bytes) -> None:
        """What goes no other way."""
        ...

    @property
    def can_be_bypassed(self) -> bool:
        """Whether the bytes on the wire are those of its requests."""
        ...

    def expects(self, arriving: Arriving) -> None:
        """A long body comes, and not by way of the connection."""
        ...

    def has_all(self) -> None:
        """It is there: what comes now is the beginning of a request."""
        ...

    def give_up(self) -> None:
        """Nobody reads the rest of the body."""
        ...

    def data_received(self, data: bytes) -> None:
        """Bytes that nobody waits for."""
        ...

    def passed(self, count: int) -> None:
        """So many bytes of a body have come to their place."""
        ...


class Shortcut:
    """Takes what a connection brings between two requests.

    Args:
        path: the server's.

    Attributes:
        learn: takes a head that was parsed, as the fast path has it.
    """

    __slots__ = ("_apart", "_carrier", "_cycle", "_inlet", "_path", "_timer", "learn")

    def __init__(self, carrier: Carrier, path: FastPath) -> None:
        self._carrier = carrier
        self._path = path
        self.learn = path.learn
        # A head whose body is still to come, and how long it is waited for before the parser has it.
        self._apart: tuple[bytes, KnownHead] | None = None
        self._timer: asyncio.TimerHandle | None = None
        # Whose long body comes, and where its bytes come in.
        self._cycle: NullCycle | None = None
        self._inlet: Inlet | None = None

    def take(self, data: bytes) -> bool:
        """Whether a piece is a whole request, or the head of one, or completes it, and goes this way."""
        if self._apart is not None:
            return self._complete(data)
        known = self._path.find(data)
        if known is None or self._carrier.flow.write_paused:
            return False
        have = len(data) - known.head_bytes
        if known.body_bytes > INLINE_BYTES:
            return have <= known.body_bytes and self._expect(known, memoryview(data)[known.head_bytes :])
        if have == known.body_bytes:
            return self._answer(known, data, known.head_bytes)
        if not have and known.said.limit_s is None:
            self._apart = data, known
            self._timer = self._carrier.loop.call_later(_APART_S, self.let_go)
            return True
        return False

    def let_go(self) -> None:
        """Let the parser have the head that waits for its body."""
        if self._apart is not None:
            head = self._apart[0]
            self._wait_no_more()
            self._carrier.parse(head)

    def forget(self) -> None:
        """The connection is gone: nothing is waited for."""
        self._wait_no_more()
        self._inlet = self._cycle = None  # they refer to it

    @property
    def is_waiting(self) -> bool:
        """Whether there is a head without its body."""
        return self._apart is not None

    def _wait_no_more(self) -> None:
        self._apart = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _complete(self, data: bytes) -> bool:
        assert self._apart is not None
        known = self._apart[1]
        if len(data) == known.body_bytes and self._answer(known, data, 0):
            self._wait_no_more()
            return True
        self.let_go()
        return False

    def _answer(self, known: KnownHead, piece: bytes, start: int) -> bool:
        """Answer a request whose body is the piece, from there on; no where that is for others to do."""
        path, carrier = self._path, self._carrier
        visit = path.visit(known)
        if visit is None:
            return False
        if not path.arrivals.is_clear(visit.version):
            away = path.turn_away(visit, known, (piece, start))
            if away is not None:
                carrier.refuse_gently(NullCycle(more_body=False), away if start else away.once())
                return True
        cycle = NullCycle(more_body=False)
        carrier.takes(cycle)
        self._make(cycle, path.request(known, visit), bytearray(memoryview(piece)[start:]))
        return True

    # Long bodies

    def _expect(self, known: KnownHead, begun: memoryview) -> bool:
        """Have a long body read to its place; no where that is for others to do, or to refuse."""
        path, carrier = self._path, self._carrier
        visit = path.visit(known)
        if visit is None or not carrier.can_be_bypassed:
            return False
        request = path.request(known, visit)
        if not path.may_come(visit, request):
            return False
        try:
            allowance = request.expect()
        except ServiceError:
            return False
        if self._inlet is None:
            self._inlet = Inlet(carrier, path.room)
        self._cycle = NullCycle(more_body=True)
        carrier.takes(self._cycle)
        arriving = Arriving(self, self._inlet, request, allowance, known.body_bytes)
        carrier.expects(arriving)
        arriving.begin(carrier.loop, begun)
        return True

    def came(self, request: FastRequest, body: bytearray) -> None:
        """All of a long body is there."""
        cycle = self._its_cycle()
        self._carrier.has_all()
        self._make(cycle, request, body)

    def failed(self, request: FastRequest, error: ServiceError) -> None:
        """It is not, and nobody reads what may still come: the client is told so."""
        cycle = self._its_cycle()
        self._carrier.give_up()
        send(self._carrier, cycle, request.refused(error))
        self._over(cycle, request)

    def lost(self, request: FastRequest, error: ServiceError) -> None:
        """It is not, and nobody is there to be told."""
        self._its_cycle()
        request.refused(error)
        self._path.over(request)

    def _its_cycle(self) -> NullCycle:
        assert self._cycle is not None  # its body comes
        cycle, self._cycle = self._cycle, None
        return cycle

    # Answers

    def _make(self, cycle: NullCycle, request: FastRequest, body: bytearray) -> None:
        """Answer a request whose body is there: now, or in a while."""
        arrivals, loop = self._path.arrivals, self._carrier.loop
        arrivals.begins_at_once(loop)
        answered = request.now(body)
        if answered is None:  # it asks for its place in the next turn of the loop, behind all that came in this one
            lane = request.visit.version.lane
            arrivals.comes(lane)
            loop.call_soon(arrivals.begins, lane)
            self._go_on(cycle, self._finish(cycle, request))
        elif request.exchange.sent > _AT_ONCE:
            self._go_on(cycle, self._finish(cycle, request, answered))
        else:
            send(self._carrier, cycle, answered)
            if self._carrier.flow.write_paused:
                self._go_on(cycle, self._drain(cycle, request))
            else:
                self._over(cycle, request)

    def _over(self, cycle: NullCycle, request: FastRequest) -> None:
        """The answer is on its way, all of it."""
        self._path.over(request)
        cycle.response_complete = True
        self._carrier.took()

    def _go_on(self, cycle: NullCycle, rest: Coroutine[Any, Any, None]) -> None:
        """Do the rest of a request in a task."""
        carrier = self._carrier
        cycle.task = carrier.loop.create_task(rest)
        cycle.task.add_done_callback(carrier.tasks.discard)
        carrier.tasks.add(cycle.task)

    async def _finish(self, cycle: NullCycle, request: FastRequest, answered: Answered | None = None) -> None:
        """Make the answer, if it is not made yet, and send it as the client takes it."""
        try:
            answered = answered or await request.later()
            await send_slowly(self._carrier, cycle, answered)
        except asyncio.CancelledError:
            if not cycle.disconnected:
                self._carrier.transport.close()
                raise
        finally:
            self._path.over(request)
        cycle.response_complete = True
        self._carrier.on_response_complete()

    async def _drain(self, cycle: NullCycle, request: FastRequest) -> None:
        """Wait until the client has taken most of what was sent: until then its request holds memory."""
        cycle.response_started = True
        try:
            await self._carrier.flow.drain()
        except asyncio.CancelledError:
            if not cycle.disconnected:
                raise
        finally:
            self._path.over(request)
        cycle.response_complete = True
        self._carrier.on_response_complete()
