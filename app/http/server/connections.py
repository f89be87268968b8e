"""The connections of a process: limits in total and per peer, and which of them are closed in favour of new ones.

Idle connections, and those that send the head of a request slowly, are closed first when the limit is reached: this
costs their clients only a reconnect. If all are busy, a few more are admitted that may only request the health, so
that a probe does not mistake a busy server for a dead one.
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

# Share of the file descriptors for connections.
_SHARE: Final = 5 / 8
# Share of all connections for one peer, so that there is room for another.
_PEER_SHARE: Final = 3 / 4
# Connections beyond the limit that may only request the health.
RESERVE: Final = 16
# Interval of checks, and their least number within each time limit. A deadline is noticed at most one check late.
_LOOK_S: Final = 0.25
_LOOKS: Final = 4
# Limits of the cache of heads: entries, and bytes of each.
_HEADS: Final = 512
_HEAD_BYTES: Final = 2048
# Size of the shared read buffer; long bodies have their own.
_ROOM_BYTES: Final = 1 << 16


class Connections:
    """Connections of a process, within the limits of docs/security.md, "Connections and headers".

    One timer checks all of them a few times a second, so that a request in time costs no timer.

    Attributes:
        heads: cache of valid heads by their bytes, since clients repeat them. Parsing a head takes more than a tenth of
            a short request (docs/decisions/002-one-request-path.md).
        refusals: requests answered by their connection, by error code.
        is_draining: whether every answer closes its connection, so that clients move to another server.
        room: read buffer of all connections; bytes are copied out before the next read.
        reserved: connections that may only request the health.
    """

    def __init__(self, settings: Settings) -> None:
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if descriptors == resource.RLIM_INFINITY:
            descriptors = 1 << 30
        self.settings = settings
        self.most = min(settings.max_connections, max(1, int(descriptors * _SHARE)))
        self.most_per_peer = min(settings.max_connections_per_peer, max(1, int(self.most * _PEER_SHARE)))
        self.heads: dict[bytes, Head] = {}
        self.refusals: Counter[str] = Counter()
        self.is_draining = False
        self.room = memoryview(bytearray(_ROOM_BYTES))
        self.reserved: dict[Connection, None] = {}
        self._admitted: dict[Connection, str] = {}
        self._peers: Counter[str] = Counter()
        # Idle connections, longest idle first.
        self._waiting: dict[Connection, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._tick_s = min(_LOOK_S, settings.header_timeout_s / _LOOKS, settings.body_timeout_s / _LOOKS)

    def __len__(self) -> int:
        return len(self._admitted) + len(self.reserved)

    def cache_head(self, text: bytes, head: Head) -> None:
        """Cache a valid head of usual length and without chunks."""
        if len(text) <= _HEAD_BYTES and head.length is not None:
            if len(self.heads) >= _HEADS:
                self.heads.clear()
            self.heads[text] = head

    def admit(self, connection: Connection) -> None:
        """Admit a new connection, closing another one if necessary; cut it off if none can be closed."""
        group = _group(connection.client and connection.client[0])
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
        """Remove a connection that has ended."""
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
        """Close the longest idle connection of a peer, or of all; not one that is still sending an answer."""
        mine = (
            connection
            for connection in self._waiting
            if connection in self._admitted and group in (None, self._admitted[connection])
        )
        self._dismiss(next((connection for connection in mine if not connection.is_taking_its_answer), None))

    def _dismiss(self, connection: Connection | None) -> None:
        if connection is not None:
            self.remove(connection)
            connection.cut_off() if connection.is_taking_its_answer else connection.transport.close()

    def _tick(self) -> None:
        now = asyncio.get_running_loop().time()
        everyone = [*self._admitted, *self.reserved]
        self._timer = asyncio.get_running_loop().call_later(self._tick_s, self._tick) if everyone else None
        for connection in everyone:
            try:
                connection.check(now)
            except Exception:  # a bug with one connection must not leave the others unchecked
                log.exception("failed to check a connection")
                connection.cut_off()


def _group(peer: str | None) -> str:
    """Return what counts as one peer: an IPv4 address or the /64 network of an IPv6 address; empty if unknown."""
    if peer is None or ":" not in peer:
        return peer or ""
    try:
        address = ipaddress.IPv6Address(peer.partition("%")[0])
    except ValueError:
        return peer
    return str(address.ipv4_mapped or ipaddress.IPv6Address(int(address) >> 64 << 64))
