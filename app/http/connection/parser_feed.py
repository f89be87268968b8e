"""What a connection gives to its parser: of a head no more than a head may have, of a long body as little as can be."""

from __future__ import annotations

import asyncio
from typing import Any, Final, Protocol

import httptools

from app.errors import InvalidRequestError, ServiceError
from app.http.connection.admission import Limits
from app.http.connection.head import size_fault, too_long
from app.http.connection.incoming import Incoming
from app.http.fast_path.heads import END_OF_HEAD
from app.http.wire.direct_reader import Flow

# Of longer pieces the parser gets the head by itself.
_LONG_PIECE: Final = 32 * 1024


class Carrier(Protocol):
    """The connection, which the parser calls."""

    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    parser: Any
    url: bytes
    headers: list[tuple[bytes, bytes]]

    @property
    def flow(self) -> Flow:
        """What comes."""
        ...

    @property
    def is_deaf(self) -> bool:
        """Whether nothing that comes is read any more."""
        ...

    @property
    def awaited(self) -> int:
        """How long the body is that comes, if its reader may have it past the parser, and the parser has none yet."""
        ...

    def refuse(self, error: ServiceError) -> None:
        """Read nothing more, and end with this error."""
        ...

    def stumbles(self, exc: httptools.HttpParserError) -> None:
        """What came is no request, or none that is taken."""
        ...

    def upgrades(self) -> bytes:
        """The client offers another language: have a new parser, and give the head that is read without the offer."""
        ...


class ParserFeed:
    """One connection's bytes on their way to its parser."""

    __slots__ = ("_ahead", "_begun", "_carrier", "_incoming", "_fed", "_limits", "_piece")

    def __init__(self, carrier: Carrier, coming: Incoming, limits: Limits) -> None:
        self._carrier = carrier
        self._incoming = coming
        self._limits = limits
        # The piece at hand, how much of it the parser has, and which of the requests in it is being read.
        self._piece, self._fed, self._begun = b"", 0, 0
        # Of a long body what came with its head, as long as neither its reader nor the parser has it.
        self._ahead: memoryview | None = None

    def parse(self, data: bytes) -> None:
        """Give a piece to the parser."""
        carrier, coming = self._carrier, self._incoming
        while data and coming.in_head:
            if not coming.head_bytes:
                coming.since = carrier.loop.time()
            whole, rest = data, memoryview(b"")
            room = self._limits.head_bytes - coming.head_bytes
            if len(data) > min(room, _LONG_PIECE):
                end = data.find(END_OF_HEAD, 0, room)
                cut = room if end < 0 else end + len(END_OF_HEAD)
                data, rest = data[:cut], memoryview(data)[cut:]
            coming.head_bytes += len(data)
            self._feed(data, whole)
            if carrier.is_deaf or (rest and self._keep(rest)):
                return
            data = bytes(rest)
            if coming.in_head and coming.head_bytes >= self._limits.head_bytes:
                carrier.refuse(size_fault(carrier.url, carrier.headers, self._limits) or too_long(self._limits))
                return
        if data:
            coming.raw += len(data)
            self._feed(data)
            if coming.is_framing and not coming.in_head:
                carrier.refuse(InvalidRequestError("the request's chunks have more around them than in them"))

    def begins(self) -> None:
        """The parser has found the beginning of a request."""
        self._begun += 1

    def text(self) -> tuple[bytes, int] | None:
        """The piece that the head at hand ends in, and where; None where there may be several."""
        is_first = self._begun == 1 and self._incoming.head_bytes == self._fed  # and the piece begins with it
        at = self._piece.find(END_OF_HEAD) if is_first else -1
        return None if at < 0 else (self._piece, at + len(END_OF_HEAD))

    def take_ahead(self) -> memoryview | None:
        """What came of the body with the head, if the parser has not had it."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            self._incoming.raw += len(ahead)
        return ahead

    def _keep(self, rest: memoryview) -> bool:
        """Leave what came of a long body with its head where it is, for who reads it: each copy of it takes time."""
        carrier = self._carrier
        if carrier.awaited <= len(rest):
            return False
        self._ahead = rest
        carrier.flow.pause_reading()
        carrier.loop.call_soon(self._go_on)  # behind the first step of who answers
        return True

    def _go_on(self) -> None:
        """Let the parser have what nobody has taken."""
        ahead, carrier = self.take_ahead(), self._carrier
        if ahead is not None and not carrier.is_deaf and not carrier.transport.is_closing():
            carrier.flow.resume_reading()
            self._feed(ahead)

    def _feed(self, data: bytes | memoryview, whole: bytes = b"") -> None:
        self._piece, self._fed, self._begun = whole, len(data), 0
        pieces = [memoryview(data)]
        while pieces and not self._carrier.is_deaf:
            piece = pieces.pop()
            try:
                self._carrier.parser.feed_data(piece)
            except httptools.HttpParserUpgrade as exc:  # with where in the piece its head ended
                pieces = [piece[exc.args[0] :], memoryview(self._carrier.upgrades())]
            except httptools.HttpParserError as exc:
                self._carrier.stumbles(exc)
                break
        self._piece = b""
