"""Who may go the fast path, and what is counted of those that did."""

from __future__ import annotations

from collections import Counter

from app.access.decision import refusal
from app.access.groups import Group
from app.access.keys import Keys
from app.http.fast_path.heads import Heads, KnownHead
from app.http.fast_path.inlet import ROOM_BYTES
from app.http.fast_path.request import FastRequest, Means
from app.http.refusing.gate import Gate
from app.http.refusing.visits import TurnedAway, Visit
from app.protocol.v2.ports import are_known


class FastPath:
    """One for all connections of a server.

    Args:
        gate: stands before it as before the long one.
        keys: None where there are none.
        statuses: answers are counted in it.
        access_log: whether each request has a line of its own.
    """

    def __init__(
        self,
        means: Means,
        gate: Gate,
        *,
        keys: Keys | None = None,
        statuses: Counter[int] | None = None,
        access_log: bool = False,
    ) -> None:
        self._means = means
        self._gate = gate
        self._keys = keys
        self._statuses: Counter[int] = Counter() if statuses is None else statuses
        self._access_log = access_log
        self._heads = Heads(means.plane.settings.max_body_bytes)
        self.find, self.learn = self._heads.find, self._heads.learn
        self.arrivals = gate.arrivals
        # Where all connections read what is no long body.
        self.room = memoryview(bytearray(ROOM_BYTES))

    def visit(self, known: KnownHead) -> Visit | None:
        """What a request is for; None where others say what is wrong with it."""
        visit = self._gate.visit(known.method, known.url)
        if visit is None or visit.version.model is None:
            return None
        if self._keys is not None and refusal(self._keys, Group.INFER, known.key, is_local=False) is not None:
            return None
        return visit if not visit.target.is_v2 or are_known(visit.version.model) else None

    def turn_away(self, visit: Visit, known: KnownHead, text: tuple[bytes, int]) -> TurnedAway | None:
        """What to answer where it would be refused anyway; as the gate has it."""
        return self._gate.turn_away(visit, known.headers, may_stay=True, text=text)

    def may_come(self, visit: Visit, request: FastRequest) -> bool:
        """Whether a long body is worth reading: its request would be taken, as far as its head tells."""
        arrivals = self.arrivals
        return arrivals.is_clear(visit.version) or arrivals.refusal(visit.version, request.deadline) is None

    def request(self, known: KnownHead, visit: Visit) -> FastRequest:
        """What makes the answer."""
        return FastRequest(self._means, known, visit)

    def over(self, request: FastRequest) -> None:
        """It is answered, or never will be."""
        request.close()
        exchange = request.exchange
        if exchange.status:
            self._statuses[exchange.status] += 1
        if self._access_log:
            exchange.enter()
            exchange.log()
            exchange.leave()
