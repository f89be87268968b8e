"""What one connection is at, and what others do with it: who reads a body, who answers past the app, who refuses.

What happens to it is in connection.py: asyncio, the parser and admission call that.
"""

from __future__ import annotations

import logging
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from app.errors import ServiceError
from app.http.connection.admission import Admission, Pass
from app.http.connection.closing import Closing
from app.http.connection.head import without_upgrade
from app.http.connection.incoming import Incoming
from app.http.connection.outgoing import Outgoing
from app.http.connection.parser_feed import ParserFeed
from app.http.fast_path.body import Arriving
from app.http.fast_path.fast_path import FastPath
from app.http.fast_path.shortcut import Shortcut
from app.http.refusing.gate import Gate
from app.http.refusing.refused import Refused
from app.http.refusing.visits import TurnedAway, Visit
from app.http.wire.null_cycle import NullCycle
from app.http.wire.reception import Funnel

log = logging.getLogger(__name__)


class ConnectionBase(HttpToolsProtocol):
    """A connection, as those see it who have something to do with its requests."""

    def __init__(
        self, *uvicorns: Any, admission: Admission, gate: Gate | None = None, fast_path: FastPath | None = None
    ) -> None:
        super().__init__(*uvicorns)
        self.peer: str | None = None
        self._admission = admission
        self._gate = gate
        self._pass = Pass.WELCOME
        # What comes, the answers that go, and how it ends.
        self._incoming = Incoming(admission.limits)
        self._feed = ParserFeed(self, self._incoming, admission.limits)
        self._outgoing = Outgoing(admission.limits)
        self._closing = Closing(self, self._incoming, admission)
        # Requests that the app never sees: those that are answered here, and those that are refused.
        self._short = None if fast_path is None or self.config.root_path else Shortcut(self, fast_path)
        self._refused = None if gate is None else Refused(self, gate)
        # What the request is for whose head came last, as far as that says.
        self._visit: Visit | None = None
        # Before the first byte of a request there is a head already, that of none: line ends alone may fill it.
        self.url, self.headers = b"", []
        # The request that is being answered, which later ones may have come behind; and who reads its body.
        self._active: RequestResponseCycle = None  # type: ignore[assignment]  # as uvicorn has its cycle
        self._reader: Funnel | Arriving | None = None

    # What the feeding looks at, and what the reception of a body does

    def parse(self, data: bytes) -> None:
        """Give a piece to the parser."""
        self._feed.parse(data)

    @property
    def is_deaf(self) -> bool:
        """Whether nothing that comes is read any more."""
        return self._closing.is_deaf

    @property
    def can_be_bypassed(self) -> bool:
        """Whether the bytes on the wire are those of the body; the sender of a chunked one says no length."""
        return self.scheme == "http" and not self._closing.is_deaf and not self.transport.is_closing()

    @property
    def awaited(self) -> int:
        """How long the body is that comes, if its reader may have it past the parser, and the parser has none yet."""
        coming, cycle = self._incoming, self.cycle
        if coming.in_head or coming.payload or cycle is None or cycle is not self._active or not self.can_be_bypassed:
            return 0
        return next((int(value) for name, value in cycle.scope["headers"] if name == b"content-length"), 0)

    def take_ahead(self) -> memoryview | None:
        """What came of the body with the head, if the parser has not had it."""
        return self._feed.take_ahead()

    def bypass(self, funnel: Funnel) -> None:
        """Have bytes of the body read to their place; the parser gets nothing until all of it is there."""
        self._closing.is_deaf, self._reader = True, funnel
        self.flow.pause_reading()  # before: who reads already reads as it began
        self.transport.set_protocol(funnel)
        self.flow.resume_reading()

    def passed(self, count: int) -> None:
        """So many bytes of the body have come."""
        self._incoming.passed(count)

    def resume(self) -> None:
        """All of the body is there: what comes now is the head of the next request, for a parser that waits for one."""
        self._closing.is_deaf, self._reader = False, None
        self.parser = new_parser(self)
        self.on_message_complete()
        self.flow.resume_reading()

    def give_up(self) -> None:
        """The rest of the body is read by nobody: its answer is the last one."""
        if self._reader is not None and not self.transport.is_closing():
            self._reader.leave()
        self._reader = None
        self._closing.turns_deaf()
        self.cycle.keep_alive = False

    # What the fast path does

    def takes(self, cycle: NullCycle) -> None:
        """A request has come, and is being answered."""
        self.cycle = self._active = cycle  # type: ignore[assignment]  # it has what is looked at
        self._outgoing.begins()
        self._admission.works(self)

    def expects(self, arriving: Arriving) -> None:
        """A long body comes, and not by way of the connection."""
        self._reader = arriving
        self._incoming.has_head(self.loop.time())

    def has_all(self) -> None:
        """It is there: what comes now is the beginning of a request."""
        self._reader = None
        self._incoming.ends()
        self.cycle.more_body = False

    def took(self) -> None:
        """It is answered, all at once: nothing was stopped meanwhile that would have to go on."""
        self.server_state.total_requests += 1
        if not self.transport.is_closing():
            self._wait()

    def refuse_gently(self, cycle: NullCycle, away: TurnedAway) -> None:
        """It is answered with the next round; the connection goes on."""
        assert self._refused is not None  # there is a gate, which refuses
        self._refused.refuse(cycle, away)

    # What refusals do

    def stands(self, cycle: NullCycle) -> None:
        """A request has come that nothing is made of."""
        self.cycle = cycle  # type: ignore[assignment]  # it has what is looked at
        self._incoming.since = self.loop.time()
        self._admission.works(self)

    @property
    def is_between(self) -> bool:
        """Whether what comes is the beginning of a request, nothing else is under way, and others may follow."""
        return (
            self._incoming.in_head
            and not self._incoming.head_bytes
            and (self.cycle is None or self.cycle.response_complete)
            and self._pass is Pass.WELCOME
            and not self._admission.is_emptying
        )

    @property
    def has_more(self) -> bool:
        """Whether there is something behind the request that has its answer, which would have to go on."""
        coming = self._incoming
        is_coming = not coming.in_head or coming.head_bytes or self.pipeline
        return bool(is_coming or self._closing.farewell or self.flow.read_paused)

    def refuse(self, error: ServiceError) -> None:
        """Read nothing more, and end with this error: now, or after the answers that are due before it."""
        self._closing.turns_deaf()
        self._closing.farewell = error
        log.debug("refused: %s", error.message)
        if self._reader is not None:
            self._reader.leave()
            self._reader.stop()
            self._reader = None
        if not self._incoming.in_head:  # the last request is the one that is broken
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
        self._unset_keepalive_if_required()
        self._closing.say(error)

    # What admission does

    @property
    def is_taking_its_answer(self) -> bool:
        """Whether there are bytes for the client on their way."""
        return self.transport.get_write_buffer_size() > 0

    def leave(self) -> None:
        """Make room for another connection."""
        if self._closing.lingers or self.is_taking_its_answer:
            self.cut_off()
        else:
            self.transport.close()

    def cut_off(self) -> None:
        """End at once, and drop what was not sent."""
        self._closing.is_deaf = True
        self.transport.abort()

    def check(self, now: float) -> None:
        """End what takes too long."""
        raise NotImplementedError

    # What the parser does when it stumbles

    def stumbles(self, exc: httptools.HttpParserError) -> None:
        """What came is no request, or none that is taken."""
        raise NotImplementedError

    def upgrades(self) -> bytes:
        """Nothing is upgraded to (RFC 9110 section 7.8): the request is read again without its offer, then its body."""
        if not self._offers_upgrade:
            self._closing.turns_deaf()
            self.cycle.keep_alive = False
            return b""
        head = without_upgrade(self.parser.get_method(), self.url, self.parser.get_http_version(), self.headers)
        self.parser = new_parser(self)
        return head

    @property
    def _offers_upgrade(self) -> bool:
        """Whether the parser takes what follows the head for another language, be it this request's body."""
        return bool(self.parser.should_upgrade()) and self.parser.get_method() != b"CONNECT"  # that one is refused

    def _wait(self) -> None:
        self._incoming.since = self.loop.time()
        self._admission.waits(self)


def new_parser(protocol: HttpToolsProtocol) -> httptools.HttpRequestParser:
    """A parser that waits for a head, as lenient as uvicorn's."""
    parser = httptools.HttpRequestParser(protocol)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser
