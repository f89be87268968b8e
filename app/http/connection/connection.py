"""One connection: uvicorn's protocol with bounds on what a client may send, how slowly, and how slowly it may read.

Bytes are counted before the parser sees them, so that no head is collected that is too long to be answered. Every
refusal, and every fault of the protocol, is an error in the service's one shape; it is sent after the answers to the
requests that came before it, and then the connection ends. On the way of a good request there is a handful of
additions and comparisons for each piece that arrives, and no timer of its own: admission looks after all connections.
"""

from __future__ import annotations

import asyncio
from typing import Any

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvicorn.server import ServerState

from app.errors import RequestTimeoutError, ServiceError
from app.http.connection.admission import Admission, Pass
from app.http.connection.answering import Answering
from app.http.connection.base import ConnectionBase
from app.http.connection.head import head_fault, protocol_fault
from app.http.fast_path.fast_path import FastPath
from app.http.refusing.gate import Gate
from app.http.refusing.visits import TurnedAway
from app.http.wire.null_cycle import NullCycle
from app.http.wire.reception import RECEPTION, Reception


class Connection(ConnectionBase):
    """A connection, from accept to close."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        admission: Admission,
        gate: Gate | None = None,
        fast_path: FastPath | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop, admission=admission, gate=gate, fast_path=fast_path)
        # Why the parser was stopped at the end of a head: an error, or an answer that is the last one.
        self._error: ServiceError | None = None
        self._last_word: bytes | None = None

    # What asyncio calls

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Come in, if there is room."""
        super().connection_made(transport)
        self.peer = self.client[0] if self.client else None
        self._incoming.since = self.loop.time()
        self._pass = self._admission.admit(self)
        if self._pass is Pass.REFUSED:
            self.cut_off()
        else:
            self._admission.waits(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The end."""
        self._admission.forget(self)
        if self._reader is not None:
            self._reader.stop()
        if self._short is not None:
            self._short.forget()
            self._short = None  # it refers to the connection
        super().connection_lost(exc)
        if isinstance(self._active, NullCycle):
            self._active.drop()
        elif self._active is not None:  # another one than the last that came, where requests were sent ahead
            self._active.disconnected = True
            self._active.message_event.set()
        self._unset_keepalive_if_required()
        self.pipeline.clear()

    def data_received(self, data: bytes) -> None:
        """Have a piece counted, and taken by who may answer at once, or else parsed."""
        self._unset_keepalive_if_required()
        if self._closing.is_deaf:
            self._closing.drops(len(data))
            return
        is_apart = self._short is not None and self._short.is_waiting
        if self._refused is not None and not is_apart and self._refused.again(data):
            return
        if self._short is not None and (is_apart or self.is_between) and self._short.take(data):
            return
        self._feed.parse(data)

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
        self._outgoing.paused(self.transport.get_write_buffer_size(), self.loop.time())

    def resume_writing(self) -> None:
        """It has taken most of what there was."""
        super().resume_writing()
        self._outgoing.resumed(self.transport.get_write_buffer_size())

    # What the parser calls

    def on_message_begin(self) -> None:
        """The first byte of a request; it may have come with the end of the one before."""
        self._incoming.begins()
        self._feed.begins()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is complete: is it one to be answered?"""
        if self._offers_upgrade:
            return  # it comes again, without its offer
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
            self.refuse_gently(NullCycle(more_body=True), turned_away)
        self._incoming.has_head(self.loop.time())
        if not self.cycle.response_complete:
            self._admission.works(self)
        # Fields behind a chunked body are headers to the parser, but must not become any: they go nowhere.
        self.headers = []
        if self._pass is Pass.HEALTH_ONLY or self._admission.is_emptying:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._incoming.has_piece(len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is complete; the next one may begin."""
        if self._offers_upgrade:
            return
        self._incoming.ends()
        super().on_message_complete()
        if self.cycle.response_complete:
            self._wait()

    def on_response_complete(self) -> None:
        """A request is answered: wait for the next one, or say why there will be none."""
        super().on_response_complete()
        if self.transport.is_closing():
            return
        coming = self._incoming
        coming.since = self.loop.time()
        if self.cycle.response_complete:  # the last one that came
            if self._closing.farewell is not None:
                self._unset_keepalive_if_required()
                self._closing.say(self._closing.farewell)
            elif coming.in_head:
                self._wait()
                if coming.head_bytes:  # the next head has begun: it has its own time
                    self._unset_keepalive_if_required()

    def stumbles(self, exc: httptools.HttpParserError) -> None:
        """What came is no request, or none that is taken."""
        if self._last_word is None:
            self.refuse(self._error or protocol_fault(exc))
        else:
            self._closing.turns_deaf()
            self._unset_keepalive_if_required()
            self._closing.end_with(self._last_word)

    # What admission calls

    def check(self, now: float) -> None:
        """End what takes too long: a head, a body, an answer that is not taken."""
        if self._is_reading_too_slowly(now):
            self.cut_off()
        elif self._closing.lingers:
            self._closing.check(now, is_taking=self._outgoing.is_slow)
        elif self.transport.is_closing() or self._closing.farewell is not None:
            return
        elif self._refused is not None and self._refused.is_aside:
            self._wait()  # it comes back if it does not ask again
        elif self._incoming.in_head:
            self._check_head(now)
        else:
            self._check_body(now)

    # Inside

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._active = cycle
        self._outgoing.begins()
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

    def _head_fault(self) -> ServiceError | None:
        """What is wrong with a complete head; None for a good one."""
        return head_fault(
            self.url,
            self.headers,
            self.parser.get_http_version(),
            self._admission.limits,
            waiting=len(self.pipeline),
            is_for_health=self._pass is Pass.HEALTH_ONLY,
        )

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
        return self._gate.turn_away(
            self._visit,
            self.headers,
            may_stay=self.parser.should_keep_alive() and self.parser.get_http_version() != "1.0",
            text=self._feed.text(),
        )

    def _learn(self) -> None:
        """Have a good head remembered, where all of it is at hand."""
        if self._short is None or self._visit is None or (text := self._feed.text()) is None:
            return
        if self.parser.get_http_version() == "1.1" and self.parser.should_keep_alive():
            self._short.learn(text[0][: text[1]], self._visit, self.parser.get_method(), self.url, self.headers)

    def _check_head(self, now: float) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            return  # a request that came before is being answered
        if not self._incoming.is_head_late(now, is_first=self.cycle is None):
            return
        if self._incoming.head_bytes:
            self.refuse(RequestTimeoutError("the request's headers did not arrive in time"))
        else:
            self.transport.close()

    def _check_body(self, now: float) -> None:
        coming = self._incoming
        if self.flow.read_paused:  # it is the server that does not read
            coming.restarts(now)
        elif self.cycle.response_complete:
            # The answer did not need the rest of the body; what is left of it must come soon.
            if now - coming.since > self._admission.limits.header_timeout_s:
                self.cut_off()
        elif coming.is_body_late(now):
            self.refuse(RequestTimeoutError("the request's body did not arrive in time"))

    def _is_reading_too_slowly(self, now: float) -> bool:
        unsent, is_answered = self.transport.get_write_buffer_size(), self.cycle is None or self.cycle.response_complete
        return self._outgoing.is_too_slow(unsent, now, is_paused=self.flow.write_paused, is_answered=is_answered)
