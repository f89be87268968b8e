"""Who may come in: how many connections there may be, from one peer and in all, and who has to make room.

A connection that sends nothing, or sends the head of its request slowly, is the first to go when there is no more room:
it costs its client nothing but a new attempt. Where all are busy, a few more are let in that may only ask for the
server's health, so that a probe does not take a server at work for a dead one.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import resource
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol, Self

from app.settings import Settings

log = logging.getLogger(__name__)

# Connections beyond the limit that may ask for the health.
RESERVE: Final = 16
# Of the file descriptors there are, those that connections may take.
_SHARE: Final = 5 / 8
# Connections that wait to be accepted take none: there may be as many as come while the loop is at work.
_BURST: Final = 1 / 8
_QUEUE: Final = (128, 2048)
# What one peer may take of what there is: there must be room for another one.
_PEER_SHARE: Final = 3 / 4
_TICKS: Final = 4


class Pass(Enum):
    """What a connection that comes may do."""

    WELCOME = "anything"
    HEALTH_ONLY = "ask for the health"
    REFUSED = "nothing"


class Admitted(Protocol):
    """A connection, as admission sees it. It is compared by identity."""

    peer: str | None

    def check(self, now: float) -> None:
        """Ends what takes too long; called some times a second."""
        ...

    def leave(self) -> None:
        """Makes room: ends the connection, which waits for nothing but its client."""
        ...

    @property
    def is_taking_its_answer(self) -> bool:
        """Whether there are bytes for its client on their way."""
        ...

    def cut_off(self) -> None:
        """Ends the connection at once, whatever it is doing."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a connection may do, and how many there may be."""

    head_bytes: int
    headers: int
    url_bytes: int
    pipelined: int
    header_timeout_s: float
    keep_alive_s: float
    body_timeout_s: float
    rate: int
    answer_timeout_s: float
    connections: int
    per_peer: int
    backlog: int
    retry_after_s: int

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The settings, and what the limit of file descriptors leaves of them."""
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if descriptors == resource.RLIM_INFINITY:
            descriptors = 1 << 30
        connections = min(settings.max_connections, max(1, int(descriptors * _SHARE)))
        return cls(
            head_bytes=settings.max_header_bytes + settings.max_url_bytes,
            headers=settings.max_headers,
            url_bytes=settings.max_url_bytes,
            pipelined=settings.max_pipelined,
            header_timeout_s=settings.header_timeout_s,
            keep_alive_s=settings.keep_alive_s,
            body_timeout_s=settings.body_timeout_s,
            rate=settings.min_bytes_per_s,
            answer_timeout_s=settings.answer_timeout_s,
            connections=connections,
            per_peer=min(settings.max_connections_per_peer, max(1, int(connections * _PEER_SHARE))),
            backlog=max(_QUEUE[0], min(_QUEUE[1], int(descriptors * _BURST))),
            retry_after_s=settings.retry_after_s,
        )


class Admission:
    """Counts the connections of a process, and looks after all of them some times a second.

    One timer for all: what takes long is found by looking, and a request that does not costs no timer.

    Attributes:
        refusals: requests that were answered by their connection, by the code of the error.
        is_emptying: whether every answer is the last one of its connection, so that clients go elsewhere by themselves.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._admitted: dict[Admitted, str] = {}
        self._peers: Counter[str] = Counter()
        self._reserved: dict[Admitted, None] = {}
        # Those that wait for their client, longest first.
        self._waiting: dict[Admitted, None] = {}
        self.refusals: Counter[str] = Counter()
        self.is_emptying = False
        self._timer: asyncio.TimerHandle | None = None
        self._tick_s = min(1.0, limits.header_timeout_s / _TICKS, limits.body_timeout_s / _TICKS)

    def __len__(self) -> int:
        return len(self._admitted) + len(self._reserved)

    def admit(self, connection: Admitted) -> Pass:
        """Let a new connection in, in another's place if there must be."""
        group = _group(connection.peer)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._tick_s, self._tick)
        if group and self._peers[group] >= self.limits.per_peer:
            self._make_room(group)
        elif len(self._admitted) >= self.limits.connections:
            self._make_room(None)
        if len(self._admitted) < self.limits.connections and self._peers[group] < self.limits.per_peer:
            self._admitted[connection] = group
            if group:
                self._peers[group] += 1
            return Pass.WELCOME
        if len(self._reserved) >= RESERVE:
            self._dismiss(next((other for other in self._reserved if other in self._waiting), None))
        if len(self._reserved) >= RESERVE:
            return Pass.REFUSED
        self._reserved[connection] = None
        return Pass.HEALTH_ONLY

    def forget(self, connection: Admitted) -> None:
        """The connection is over."""
        group = self._admitted.pop(connection, "")
        if group:
            self._peers[group] -= 1
            if not self._peers[group]:
                del self._peers[group]
        self._reserved.pop(connection, None)
        self._waiting.pop(connection, None)

    def waits(self, connection: Admitted) -> None:
        """The connection waits for its client's next request."""
        self._waiting.pop(connection, None)
        self._waiting[connection] = None

    def works(self, connection: Admitted) -> None:
        """The connection has a request to answer."""
        self._waiting.pop(connection, None)

    def _make_room(self, group: str | None) -> None:
        """Let that one go that has waited longest, of a peer or of all; not one that still takes its answer."""
        mine = (
            connection
            for connection in self._waiting
            if connection in self._admitted and group in (None, self._admitted[connection])
        )
        self._dismiss(next((connection for connection in mine if not connection.is_taking_its_answer), None))

    def _dismiss(self, connection: Admitted | None) -> None:
        if connection is not None:
            self.forget(connection)
            connection.leave()

    def _tick(self) -> None:
        now = asyncio.get_running_loop().time()
        everyone = [*self._admitted, *self._reserved]
        self._timer = asyncio.get_running_loop().call_later(self._tick_s, self._tick) if everyone else None
        for connection in everyone:
            try:
                connection.check(now)
            except Exception:  # a fault of ours with one must not leave the others unwatched
                log.exception("looking after a connection")
                connection.cut_off()


def _group(peer: str | None) -> str:
    """What counts as one peer: an IPv4 address, the 64 bits of an IPv6 address that name its network; else nothing."""
    if peer is None or ":" not in peer:
        return peer or ""
    try:
        address = ipaddress.IPv6Address(peer.partition("%")[0])
    except ValueError:
        return peer
    return str(address.ipv4_mapped or ipaddress.IPv6Address(int(address) >> 64 << 64))
