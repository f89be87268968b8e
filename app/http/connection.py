"""One connection: uvicorn's protocol with bounds on what a client may send, how slowly, and how slowly it may read.

Bytes are counted before the parser sees them, so that no head is collected that is too long to be answered. Every
refusal, and every fault of the protocol, is an error in the service's one shape; it is sent after the answers to the
requests that came before it, and then the connection ends. On the way of a good request there is a handful of
additions and comparisons for each piece that arrives, and no timer of its own: the door looks after all connections.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import Any, Final

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from app.codec.answers import dump_json
from app.errors import (
    InvalidRequestError,
    QueueFullError,
    RequestTimeoutError,
    ServiceError,
    TooManyConnectionsError,
)
from app.http.answering import Answering
from app.http.door import Door, Pass
from app.http.gate import Gate, TurnedAway, Visit
from app.http.head import header_fault, protocol_fault, size_fault, too_long
from app.http.raw import json_answer
from app.http.reception import RECEPTION, Funnel, Reception
from app.http.refused import Refused
from app.http.wire.known import END_OF_HEAD
from app.http.wire.shortcut import Shortcut
from app.http.wire.standin import StandIn
from app.http.wire.taking import Taking
from app.http.wire.way import ShortWay

log = logging.getLogger(__name__)

# What may be asked for where there is no room for anything else.
_HEALTH: Final = b"/health/"
_METRICS: Final = b"/metrics"
_VERSIONS: Final = ("1.0", "1.1")
# How long, and for how many bytes, a refused client may go on sending: an end in the midst of it could lose the answer.
_LINGER_S: Final = 2.0
_LINGER_BYTES: Final = 4 * 2**20
# What the framing of a chunk may take beside its bytes: its length, and an extension nobody needs.
_FRAMING: Final = 16
_TRAILERS: Final = 16 * 1024
# Of longer pieces the parser gets the head by itself.
_LONG_PIECE: Final = 32 * 1024


class Connection(HttpToolsProtocol):
    """A connection, from accept to close."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        door: Door,
        gate: Gate | None = None,
        way: ShortWay | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.peer: str | None = None
        self._door = door
        self._limits = door.limits
        self._gate = gate
        self._short = None if way is None or config.root_path else Shortcut(self, way)
        # The piece at hand, how much of it the parser has, which of the requests in it is being read, and what that is
        # for, as far as its head says.
        self._piece, self._fed, self._begun = b"", 0, 0
        self._visit: Visit | None = None
        self._last_word: bytes | None = None
        self._refused = None if gate is None else Refused(self, gate)
        self._pass = Pass.WELCOME
        # Where the request is: its head, from the first byte on or still without one; or its body.
        self._in_head = True
        self._head_bytes = 0
        self._since = 0.0
        # Of a body: all bytes, those that were its own, and in how many pieces they came.
        self._raw = self._payload = self._pieces = 0
        # Set once nothing that comes is read any more: the error to end with, and when to stop waiting for the client.
        self._is_deaf = False
        # Before the first byte of a request there is a head already, that of none: line ends alone may fill it.
        self.url, self.headers = b"", []
        self._active: RequestResponseCycle = None  # type: ignore[assignment]  # as uvicorn has its cycle
        self._funnel: Funnel | None = None
        # Of a long body what came with its head, as long as neither its reader nor the parser has it.
        self._ahead: memoryview | None = None
        self._error: ServiceError | None = None
        self._farewell: ServiceError | None = None
        self._lingers_until = 0.0
        self._taking = Taking(self._limits)

    # What asyncio calls

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Come in, if there is room."""
        super().connection_made(transport)
        self.peer = self.client[0] if self.client else None
        self._since = self.loop.time()
        self._pass = self._door.admit(self)
        if self._pass is Pass.REFUSED:
            self.cut_off()
        else:
            self._door.waits(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The end."""
        self._door.forget(self)
        if self._funnel is not None:
            self._funnel.stop()
        if self._short is not None:
            self._short.forget()
            self._short = None  # it refers to the connection
        super().connection_lost(exc)
        if isinstance(self._active, StandIn):
            self._active.drop()
        elif self._active is not None:  # another one than the last that came, where requests were sent ahead
            self._active.disconnected = True
            self._active.message_event.set()
        self._unset_keepalive_if_required()
        self.pipeline.clear()

    def data_received(self, data: bytes) -> None:
        """Count a piece, and give it to the parser, of a head no more than a head may have."""
        self._unset_keepalive_if_required()
        if self._is_deaf:
            self._raw += len(data)
            if self._raw > _LINGER_BYTES:
                self.cut_off()
            return
        is_apart = self._short is not None and self._short.is_waiting
        if self._refused is not None and not is_apart and self._refused.again(data):
            return
        if self._short is not None and (is_apart or self.is_between) and self._short.take(data):
            return
        self.parse(data)

    def parse(self, data: bytes) -> None:
        """Give a piece to the parser."""
        while data and self._in_head:
            if not self._head_bytes:
                self._since = self.loop.time()
            whole, rest = data, memoryview(b"")
            room = self._limits.head_bytes - self._head_bytes
            if len(data) > min(room, _LONG_PIECE):
                end = data.find(END_OF_HEAD, 0, room)
                cut = room if end < 0 else end + len(END_OF_HEAD)
                data, rest = data[:cut], memoryview(data)[cut:]
            self._head_bytes += len(data)
            self._feed(data, whole)
            if self._is_deaf or (rest and self._keep(rest)):
                return
            data = bytes(rest)
            if self._in_head and self._head_bytes >= self._limits.head_bytes:
                self._refuse(size_fault(self.url, self.headers, self._limits) or too_long(self._limits))
                return
        if data:
            self._raw += len(data)
            self._feed(data)
            if self._raw - self._payload > _TRAILERS + _FRAMING * self._pieces and not self._in_head:
                self._refuse(InvalidRequestError("the request's chunks have more around them than in them"))

    def _keep(self, rest: memoryview) -> bool:
        """Leave what came of a long body with its head where it is, for who reads it: each copy of it takes time."""
        cycle = self.cycle
        if self._in_head or cycle is None or cycle is not self._active or not self.can_be_bypassed:
            return False
        length = next((int(value) for name, value in cycle.scope["headers"] if name == b"content-length"), 0)
        if length <= len(rest):
            return False
        self._ahead = rest
        self.flow.pause_reading()
        self.loop.call_soon(self._go_on)  # behind the first step of who answers
        return True

    def _go_on(self) -> None:
        """Let the parser have what nobody has taken."""
        ahead = self.take_ahead()
        if ahead is not None and not self._is_deaf and not self.transport.is_closing():
            self.flow.resume_reading()
            self._feed(ahead)

    def shutdown(self) -> None:
        """The server stops: what has begun to come is answered."""
        if self._refused is not None:
            self._refused.let_go()
        if self._short is not None:
            self._short.let_go()
        super().shutdown()

    def pause_writing(self) -> None:
        """The client takes its answer more slowly than it is made."""
        super().pause_writing()
        self._taking.paused(self.transport.get_write_buffer_size(), self.loop.time())

    def resume_writing(self) -> None:
        """It has taken most of what there was."""
        super().resume_writing()
        self._taking.resumed(self.transport.get_write_buffer_size())

    # What the parser calls

    def on_message_begin(self) -> None:
        """The first byte of a request; it may have come with the end of the one before."""
        self._head_bytes = self._head_bytes or 1
        self._begun += 1
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is complete: is it one to be answered?"""
        self._error = self._head_fault()
        if self._error is not None:
            raise ValueError  # the parser stops; whoever fed it looks at the error
        turned_away = self._at_the_gate()
        if turned_away is None:
            self._learn()
            super().on_headers_complete()
        else:
            if turned_away.is_last:
                self._last_word = turned_away.text
                raise ValueError
            self.refuse_gently(StandIn(more_body=True), turned_away)
        self._in_head = False
        self._head_bytes = self._raw = self._payload = self._pieces = 0
        self._since = self.loop.time()
        if not self.cycle.response_complete:
            self._door.works(self)
        # Fields behind a chunked body are headers to the parser, but must not become any: they go nowhere.
        self.headers = []
        if self._pass is Pass.HEALTH_ONLY or self._door.is_emptying:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._payload += len(body)
        self._pieces += 1
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is complete; the next one may begin."""
        self._in_head = True
        self._head_bytes = 0
        super().on_message_complete()
        if self.cycle.response_complete:
            self._wait()

    def on_response_complete(self) -> None:
        """A request is answered: wait for the next one, or say why there will be none."""
        super().on_response_complete()
        if self.transport.is_closing():
            return
        self._since = self.loop.time()
        if self.cycle.response_complete:  # the last one that came
            if self._farewell is not None:
                self._say(self._farewell)
            elif self._in_head:
                self._wait()
                if self._head_bytes:  # the next head has begun: it has its own time
                    self._unset_keepalive_if_required()

    # What the door calls

    def check(self, now: float) -> None:
        """End what takes too long: a head, a body, an answer that is not taken."""
        if self._is_reading_too_slowly(now):
            self.cut_off()
        elif self._lingers_until:
            if self._taking.is_slow:
                self._lingers_until = now + _LINGER_S
            elif now > self._lingers_until:
                self.cut_off()
        elif self.transport.is_closing() or self._farewell is not None:
            return
        elif self._in_head:
            self._check_head(now)
        else:
            self._check_body(now)

    def leave(self) -> None:
        """Make room for another connection."""
        if self._lingers_until or self.is_taking_its_answer:
            self.cut_off()
        else:
            self.transport.close()

    def cut_off(self) -> None:
        """End at once, and drop what was not sent."""
        self._is_deaf = True
        self.transport.abort()

    @property
    def is_taking_its_answer(self) -> bool:
        """Whether there are bytes for the client on their way."""
        return self.transport.get_write_buffer_size() > 0

    # What the short way calls

    def takes(self, cycle: StandIn) -> None:
        """A request has come, and is being answered."""
        self.cycle = self._active = cycle  # type: ignore[assignment]  # it has what is looked at
        self._taking.begins()
        self._door.works(self)

    def took(self) -> None:
        """It is answered, all at once: nothing was stopped meanwhile that would have to go on."""
        self.server_state.total_requests += 1
        if not self.transport.is_closing():
            self._wait()

    def refuse_gently(self, cycle: StandIn, away: TurnedAway) -> None:
        """It is answered with the next round; the connection goes on."""
        assert self._refused is not None  # there is a gate, which refuses
        self._refused.refuse(cycle, away)

    # What refusals call

    def stands(self, cycle: StandIn) -> None:
        """A request has come that nothing is made of."""
        self.cycle = cycle  # type: ignore[assignment]  # it has what is looked at
        self._since = self.loop.time()
        self._door.works(self)

    @property
    def is_between(self) -> bool:
        """Whether what comes is the beginning of a request, nothing else is under way, and others may follow."""
        return (
            self._in_head
            and not self._head_bytes
            and (self.cycle is None or self.cycle.response_complete)
            and self._pass is Pass.WELCOME
            and not self._door.is_emptying
        )

    @property
    def has_more(self) -> bool:
        """Whether there is something behind the request that has its answer, which would have to go on."""
        return bool(not self._in_head or self._head_bytes or self.pipeline or self._farewell or self.flow.read_paused)

    def _learn(self) -> None:
        """Have a good head remembered, where all of it is at hand."""
        if self._short is None or self._visit is None or (text := self._text()) is None:
            return
        if self.parser.get_http_version() == "1.1" and self.parser.should_keep_alive():
            self._short.learn(text[0][: text[1]], self._visit, self.parser.get_method(), self.url, self.headers)

    # What the reception of a body calls

    @property
    def can_be_bypassed(self) -> bool:
        """Whether the bytes on the wire are those of the body; the sender of a chunked one says no length."""
        return self.scheme == "http" and not self._is_deaf and not self.transport.is_closing()

    def bypass(self, funnel: Funnel) -> None:
        """Have bytes of the body read to their place; the parser gets nothing until all of it is there."""
        self._is_deaf, self._funnel = True, funnel
        self.flow.pause_reading()  # before: who reads already reads as it began
        self.transport.set_protocol(funnel)
        self.flow.resume_reading()

    def take_ahead(self) -> memoryview | None:
        """What came of the body with the head, if the parser has not had it."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            self._raw += len(ahead)
        return ahead

    def passed(self, count: int) -> None:
        """So many bytes of the body have come."""
        self._raw += count
        self._payload += count

    def resume(self) -> None:
        """All of the body is there: what comes now is the head of the next request, for a parser that waits for one."""
        self._is_deaf, self._funnel = False, None
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.on_message_complete()
        self.flow.resume_reading()

    def give_up(self) -> None:
        """The rest of the body is read by nobody: its answer is the last one."""
        if self._funnel is not None and not self.transport.is_closing():
            self._funnel.leave()
        self._funnel = None
        self._raw = 0
        self.cycle.keep_alive = False

    # Inside

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._active = cycle
        self._taking.begins()
        gate, lane = self._gate, None if self._visit is None else self._visit.version.lane
        if gate is not None:
            gate.arrivals.comes(lane)

        cycle.scope[RECEPTION] = Reception(self, cycle)  # type: ignore[typeddict-unknown-key]
        send = Answering(self, cycle)

        async def begin(scope: Any, receive: Any, _: Any) -> None:
            if gate is not None:
                gate.arrivals.begins(lane)
            try:
                await app(scope, receive, send)
            finally:
                scope.pop(RECEPTION, None)  # it refers to the cycle, which has the scope

        super()._start_asgi_task(cycle, begin)

    def _at_the_gate(self) -> TurnedAway | None:
        """What to answer a request without having it made; None for one that is to be made."""
        self._visit = None
        if self._gate is None or self._pass is Pass.HEALTH_ONLY:
            return None
        if self.cycle is not None and not self.cycle.response_complete:
            return None  # its turn comes after the one that is being answered
        self._visit = self._gate.visit(self.parser.get_method(), self.url)
        if self._visit is None:
            return None
        is_kept = self.parser.should_keep_alive() and not self.parser.should_upgrade()
        return self._gate.turn_away(
            self._visit,
            self.headers,
            may_stay=is_kept and self.parser.get_http_version() != "1.0",
            text=self._text(),
        )

    def _text(self) -> tuple[bytes, int] | None:
        """The piece that the head at hand ends in, and where; None where there may be several."""
        is_first = self._begun == 1 and self._head_bytes == self._fed  # and the piece begins with it
        at = self._piece.find(END_OF_HEAD) if is_first else -1
        return None if at < 0 else (self._piece, at + len(END_OF_HEAD))

    def _feed(self, data: bytes | memoryview, whole: bytes = b"") -> None:
        self._piece, self._fed, self._begun = whole, len(data), 0
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # Nothing is upgraded to: the request is answered as it is, and what follows is in a language not spoken.
            self._is_deaf, self._raw = True, 0
            self.cycle.keep_alive = False
        except httptools.HttpParserError as exc:
            if self._last_word is None:
                self._refuse(self._error or protocol_fault(exc))
            else:
                self._is_deaf, self._raw = True, 0
                self._part(self._last_word)
        finally:
            self._piece = b""

    def _head_fault(self) -> ServiceError | None:
        """What is wrong with a complete head; None for a good one."""
        limits, version = self._limits, self.parser.get_http_version()
        if (fault := size_fault(self.url, self.headers, limits)) is not None:
            return fault
        if version not in _VERSIONS:
            return InvalidRequestError("the request is of another HTTP version, expected 1.1")
        if len(self.pipeline) >= limits.pipelined:
            return QueueFullError(
                f"too many requests wait on this connection, at most {limits.pipelined} may",
                retry_after_s=limits.retry_after_s,
            )
        if self._pass is Pass.HEALTH_ONLY and not (self.url.startswith(_HEALTH) or self.url == _METRICS):
            return TooManyConnectionsError("too many open connections", retry_after_s=limits.retry_after_s)
        return header_fault(self.headers, version)

    def _wait(self) -> None:
        self._since = self.loop.time()
        self._door.waits(self)

    def _check_head(self, now: float) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            return  # a request that came before is being answered
        is_between = not self._head_bytes and self.cycle is not None
        if now - self._since <= (self._limits.keep_alive_s if is_between else self._limits.header_timeout_s):
            return
        if self._head_bytes:
            self._refuse(RequestTimeoutError("the request's headers did not arrive in time"))
        else:
            self.transport.close()

    def _check_body(self, now: float) -> None:
        took = now - self._since
        if self.flow.read_paused:  # it is the server that does not read
            self._since = now
            self._raw = self._payload = self._pieces = 0
        elif self.cycle.response_complete:
            # The answer did not need the rest of the body; what is left of it must come soon.
            if took > self._limits.header_timeout_s:
                self.cut_off()
        elif took > self._limits.body_timeout_s or (
            took > self._limits.header_timeout_s
            and self._raw < (took - self._limits.header_timeout_s) * self._limits.rate
        ):
            self._refuse(RequestTimeoutError("the request's body did not arrive in time"))

    def _is_reading_too_slowly(self, now: float) -> bool:
        unsent, is_answered = self.transport.get_write_buffer_size(), self.cycle is None or self.cycle.response_complete
        return self._taking.is_too_slow(unsent, now, is_paused=self.flow.write_paused, is_answered=is_answered)

    def _refuse(self, error: ServiceError) -> None:
        """Read nothing more, and end with this error: now, or after the answers that are due before it."""
        self._is_deaf, self._raw, self._farewell = True, 0, error
        log.debug("refused: %s", error.message)
        if self._funnel is not None:
            self._funnel.leave()
            self._funnel.stop()
            self._funnel = None
        if not self._in_head:  # the last request is the one that is broken
            if self.pipeline:
                self.pipeline.popleft()  # it has not begun, and another one is being answered
                self.cycle = self.pipeline[0][0] if self.pipeline else self._active
                return
            self.cycle.disconnected = True
            self.cycle.waiting_for_100_continue = False  # it may still begin, and would ask for a body
            self.cycle.message_event.set()
            if self.cycle.response_started:
                self.transport.close()
                return
        elif self.cycle is not None and not self.cycle.response_complete:
            return
        self._say(error)

    def _say(self, error: ServiceError) -> None:
        """Send the error as the last answer, and wait a little for the client to take it before the connection ends."""
        self._door.refusals[error.code] += 1
        self._part(json_answer(error.status, dump_json(error.body()), secrets.token_hex(8),
                               {**error.headers, "connection": "close"}))  # fmt: skip

    def _part(self, text: bytes) -> None:
        """Send the last answer, and wait a little for the client to take it before the connection ends."""
        self.transport.write(text)
        self._unset_keepalive_if_required()
        self._door.waits(self)
        self._lingers_until = self.loop.time() + _LINGER_S
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
