"""All connections of a process: how many there may be, from one peer and in all, and which make room for others.

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
from typing import TYPE_CHECKING, Final

from app.settings import Settings

if TYPE_CHECKING:
    from app.http.server.connection import Connection
    from app.http.server.messages import Head

log = logging.getLogger(__name__)

# Of the file descriptors there are, those that connections may take.
_SHARE: Final = 5 / 8
# Connections that wait to be accepted take none: there may be as many as come while the loop is at work.
_BURST: Final = 1 / 8
_QUEUE: Final = (128, 2048)
# What one peer may take of what there is: there must be room for another one.
_PEER_SHARE: Final = 3 / 4
# Connections beyond the limit that may ask for the health.
RESERVE: Final = 16
# How often all are looked at, and how often at least within each limit. A body is late for its request's deadline by
# one look at most.
_LOOK_S: Final = 0.25
_LOOKS: Final = 4
# Heads that are kept, and how long each may be.
_HEADS: Final = 512
_HEAD_BYTES: Final = 2048
# What is read at once of everything but a long body.
_ROOM_BYTES: Final = 1 << 16


class Connections:
    """Connections of a process, within the bounds of docs/security.md, "Connections and headers".

    One timer looks after all of them some times a second: a request that is in time costs none.

    Attributes:
        backlog: how many may wait to be accepted.
        heads: good heads that were read, by their bytes: a client that asks again sends the same. Reading them takes
            more than a tenth of a short request (docs/decisions/002-one-request-path.md).
        refusals: requests that were answered by their connection, by the code of the error.
        is_draining: whether every answer is the last one of its connection, so that clients go elsewhere by themselves.
        room: where all connections read what is no long body: it is copied before the next one reads.
        reserved: connections that may ask for the health and nothing else.
    """

    def __init__(self, settings: Settings) -> None:
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if descriptors == resource.RLIM_INFINITY:
            descriptors = 1 << 30
        self.settings = settings
        self.most = min(settings.max_connections, max(1, int(descriptors * _SHARE)))
        self.most_per_peer = min(settings.max_connections_per_peer, max(1, int(self.most * _PEER_SHARE)))
        self.backlog = max(_QUEUE[0], min(_QUEUE[1], int(descriptors * _BURST)))
        self.heads: dict[bytes, Head] = {}
        self.refusals: Counter[str] = Counter()
        self.is_draining = False
        self.room = memoryview(bytearray(_ROOM_BYTES))
        self.reserved: dict[Connection, None] = {}
        self._admitted: dict[Connection, str] = {}
        self._peers: Counter[str] = Counter()
        # Those that wait for their client, longest first.
        self._waiting: dict[Connection, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._tick_s = min(_LOOK_S, settings.header_timeout_s / _LOOKS, settings.body_timeout_s / _LOOKS)

    def __len__(self) -> int:
        return len(self._admitted) + len(self.reserved)

    def cache_head(self, text: bytes, head: Head) -> None:
        """Keep a good head that may come again: one of usual length and without chunks."""
        if len(text) <= _HEAD_BYTES and head.length is not None:
            if len(self.heads) >= _HEADS:
                self.heads.clear()
            self.heads[text] = head

    def admit(self, connection: Connection) -> None:
        """Let a new connection in, in another's place if there must be; cut it off where there is none."""
        group = _group(connection.peer)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._tick_s, self._tick)
        if group and self._peers[group] >= self.most_per_peer:
            self._make_room(group)
        elif len(self._admitted) >= self.most:
            self._make_room(None)
        if len(self._admitted) < self.most and self._peers[group] < self.most_per_peer:
            self._admitted[connection] = group
            if group:
                self._peers[group] += 1
        else:
            if len(self.reserved) >= RESERVE:
                self._dismiss(next((other for other in self.reserved if other in self._waiting), None))
            if len(self.reserved) >= RESERVE:
                connection.cut_off()
                return
            self.reserved[connection] = None
        self.mark_waiting(connection)

    def remove(self, connection: Connection) -> None:
        """Count a connection that is over no longer."""
        group = self._admitted.pop(connection, "")
        if group:
            self._peers[group] -= 1
            if not self._peers[group]:
                del self._peers[group]
        self.reserved.pop(connection, None)
        self._waiting.pop(connection, None)

    def mark_waiting(self, connection: Connection) -> None:
        """Note that a connection waits for its client's next request."""
        self._waiting.pop(connection, None)
        self._waiting[connection] = None

    def mark_busy(self, connection: Connection) -> None:
        """Note that a connection has a request to answer."""
        self._waiting.pop(connection, None)

    def _make_room(self, group: str | None) -> None:
        """Let that one go that has waited longest, of a peer or of all; not one that still takes its answer."""
        mine = (
            connection
            for connection in self._waiting
            if connection in self._admitted and group in (None, self._admitted[connection])
        )
        self._dismiss(next((connection for connection in mine if not connection.is_taking_its_answer), None))

    def _dismiss(self, connection: Connection | None) -> None:
        if connection is not None:
            self.remove(connection)
            connection.make_way()

    def _tick(self) -> None:
        now = asyncio.get_running_loop().time()
        everyone = [*self._admitted, *self.reserved]
        self._timer = asyncio.get_running_loop().call_later(self._tick_s, self._tick) if everyone else None
        for connection in everyone:
            try:
                connection.check(now)
            except Exception:  # a fault of ours with one must not leave the others unwatched
                log.exception("looking after a connection")
                connection.cut_off()


def _group(peer: str | None) -> str:
    """Return what counts as one peer: an IPv4 address, the network of an IPv6 address (/64); else nothing."""
    if peer is None or ":" not in peer:
        return peer or ""
    try:
        address = ipaddress.IPv6Address(peer.partition("%")[0])
    except ValueError:
        return peer
    return str(address.ipv4_mapped or ipaddress.IPv6Address(int(address) >> 64 << 64))
