"""Event simulation of nodes with queues behind balancers.

A node runs one request at a time (or ``slots``), as a pod does: a run has all its cores. Others wait in its queue, and
one more than fits is refused. Where requests are batched, a run takes all that wait when it begins. A lost node loses
its requests; their clients retry once. Balancers notice a loss, and a node that is back, at their next check.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any, Final

from benchmarks.scale.balance import POLICIES, Balancer, LeastRequest
from benchmarks.scale.load import Service


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Loss or arrival of nodes at a time: this many of the lowest numbers, or new ones."""

    at_s: float
    lost: int = 0
    come: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Cluster and its load.

    Args:
        balancers: each sees only what it has sent itself.
        slots: runs of a node that go on side by side.
        max_queue: requests that may wait at a node.
        limit: requests that a balancer sends to a node at once; more wait at the balancer and go to
            the first free node. With "least request" only: HAProxy's maxconn.
        max_batch: requests of one run; shared_share of what one takes is spent once a run.
        check_s: how late a balancer's checks find that a node is gone, or is back.
        errors: after so many connections that were refused a balancer needs no check; None: it does.
        tries: how often a request is sent until its client gives up.
        changes: in order of time.
    """

    nodes: int
    policy: str
    service: Service
    balancers: int = 1
    slots: int = 1
    max_queue: int = 64
    limit: int | None = None
    max_batch: int = 1
    shared_share: float = 0.0
    check_s: float = 4.0
    errors: int | None = None
    tries: int = 2
    changes: Sequence[Change] = ()


@dataclass(slots=True)
class Outcome:
    """Results of the requests that arrived after the warm-up.

    Args:
        waits_s: from arrival to answer, tries included, in the order of answers.
        busy_s: time that runs took, of all nodes and from the beginning.
    """

    waits_s: list[float] = field(default_factory=list)
    refused: int = 0
    failed: int = 0
    retried: int = 0
    busy_s: float = 0.0
    asked: int = 0

    def quantile_s(self, share: float) -> float:
        """Return a quantile of the waits of answered requests."""
        ordered = sorted(self.waits_s)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")

    def mean_s(self) -> float:
        """Return the average wait."""
        return sum(self.waits_s) / len(self.waits_s) if self.waits_s else float("nan")


@dataclass(slots=True)
class _Request:
    arrived_s: float
    service_s: float
    balancer: Balancer
    tries: int = 1


class _Node:
    __slots__ = ("busy", "is_up", "queue", "running", "term")

    def __init__(self) -> None:
        self.queue: deque[_Request] = deque()
        self.running: dict[int, list[_Request]] = {}
        self.busy = 0
        self.is_up = True
        # Of which life of the node a run is: what was begun before a loss ends nowhere.
        self.term = 0


_END: Final = 0
_CHANGE: Final = 1
_NOTICE: Final = 2


class Cluster:
    """One simulation with one random generator."""

    def __init__(self, plan: Plan, random: Random, settle_s: float = 0.0) -> None:
        self._plan = plan
        self._random = random
        self._settle_s = settle_s
        self._nodes = [_Node() for _ in range(plan.nodes)]
        numbers = list(range(plan.nodes))
        self._balancers: list[Balancer] = [POLICIES[plan.policy](numbers, random) for _ in range(plan.balancers)]
        self._held: dict[int, deque[_Request]] = {id(each): deque() for each in self._balancers}
        self._errors: dict[tuple[int, int], int] = {}
        self._events: list[tuple[float, int, int, Any]] = []
        self._order = count()
        self.outcome = Outcome()

    def run(self, arrivals: Iterator[float]) -> Outcome:
        """Simulate all arrivals until the last one is answered."""
        for change in self._plan.changes:
            self._at(change.at_s, _CHANGE, change)
        for now in arrivals:
            while self._events and self._events[0][0] <= now:
                self._step()
            balancer = self._balancers[int(self._random.random() * len(self._balancers))]
            if now >= self._settle_s:
                self.outcome.asked += 1
            self._send(_Request(now, self._plan.service.draw(self._random), balancer), now)
        while self._events:
            self._step()
        return self.outcome

    def _at(self, when: float, kind: int, what: Any) -> None:
        heappush(self._events, (when, next(self._order), kind, what))

    def _step(self) -> None:
        now, _, kind, what = heappop(self._events)
        if kind == _END:
            self._end(*what, now)
        elif kind == _CHANGE:
            self._change(what, now)
        else:
            self._notice(*what, now)

    def _send(self, request: _Request, now: float) -> None:
        limit, balancer = self._plan.limit, request.balancer
        if limit is not None and isinstance(balancer, LeastRequest) and balancer.least() >= limit:
            self._held[id(balancer)].append(request)
            return
        number = balancer.choose()
        if number is None:
            self._lose(request)
            return
        node = self._nodes[number]
        if not node.is_up:
            request.balancer.done(number)
            self._note_error(request.balancer, number)
            self._again(request, now)
        elif node.busy < self._plan.slots:
            self._begin(number, node, [request], now)
        elif len(node.queue) < self._plan.max_queue:
            node.queue.append(request)
        else:
            request.balancer.done(number)
            self.outcome.refused += request.arrived_s >= self._settle_s

    def _note_error(self, balancer: Balancer, number: int) -> None:
        """Count the error of a lost node, which refuses at once and so looks idle to balancers that do not count."""
        seen = (id(balancer), number)
        self._errors[seen] = self._errors.get(seen, 0) + 1
        if self._errors[seen] == self._plan.errors:
            balancer.remove(number)

    def _begin(self, number: int, node: _Node, requests: list[_Request], now: float) -> None:
        node.busy += 1
        alone = sum(request.service_s for request in requests) / len(requests)
        took = alone * (self._plan.shared_share + (1 - self._plan.shared_share) * len(requests))
        self.outcome.busy_s += took
        run = next(self._order)
        node.running[run] = requests
        self._at(now + took, _END, (number, node.term, run))

    def _end(self, number: int, term: int, run: int, now: float) -> None:
        node = self._nodes[number]
        if term != node.term:
            return
        node.busy -= 1
        for request in node.running.pop(run):
            request.balancer.done(number)
            if request.arrived_s >= self._settle_s:
                self.outcome.waits_s.append(now - request.arrived_s)
            if held := self._held[id(request.balancer)]:
                self._send(held.popleft(), now)
        if node.queue and node.busy < self._plan.slots:
            most = min(len(node.queue), self._plan.max_batch)
            self._begin(number, node, [node.queue.popleft() for _ in range(most)], now)

    def _change(self, change: Change, now: float) -> None:
        there = [number for number, node in enumerate(self._nodes) if node.is_up][: change.lost]
        for number in there:
            node = self._nodes[number]
            node.is_up, node.busy, node.term = False, 0, node.term + 1
            left = [request for run in node.running.values() for request in run] + list(node.queue)
            node.queue.clear()
            node.running.clear()
            self._at(now + self._plan.check_s, _NOTICE, (number, False))
            for request in left:
                request.balancer.done(number)
                self._again(request, now)
        for _ in range(change.come):
            self._nodes.append(_Node())
            self._at(now + self._plan.check_s, _NOTICE, (len(self._nodes) - 1, True))

    def _notice(self, number: int, is_there: bool, now: float) -> None:
        """Tell balancers of a node; requests that they hold may now have a place, or none."""
        if self._nodes[number].is_up != is_there:
            return
        for balancer in self._balancers:
            balancer.add(number) if is_there else balancer.remove(number)
            held, self._held[id(balancer)] = self._held[id(balancer)], deque()
            for request in held:
                self._send(request, now)

    def _again(self, request: _Request, now: float) -> None:
        if request.tries >= self._plan.tries:
            self._lose(request)
            return
        request.tries += 1
        self.outcome.retried += request.arrived_s >= self._settle_s
        self._send(request, now)

    def _lose(self, request: _Request) -> None:
        self.outcome.failed += request.arrived_s >= self._settle_s
