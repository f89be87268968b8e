"""Who gets the next request: the ways of load balancers, each with what it sees and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final, Protocol


class Balancer(Protocol):
    """Sends requests to nodes that it believes to be there."""

    def choose(self) -> int | None:
        """A node; None where there is none. It counts as sent."""

    def done(self, node: int) -> None:
        """A request is answered, or lost."""

    def add(self, node: int) -> None:
        """A node is there."""

    def remove(self, node: int) -> None:
        """A node is there no more."""


class _Bag:
    """A set that gives back any of its items, each as likely as the others."""

    def __init__(self, items: Sequence[int] = ()) -> None:
        self._items = list(items)
        self._places = {item: place for place, item in enumerate(self._items)}

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, item: int) -> bool:
        return item in self._places

    def add(self, item: int) -> None:
        if item not in self._places:
            self._places[item] = len(self._items)
            self._items.append(item)

    def discard(self, item: int) -> None:
        place = self._places.pop(item, None)
        if place is None:
            return
        last = self._items.pop()
        if last != item:
            self._items[place] = last
            self._places[last] = place

    def any(self, random: Random) -> int:
        return self._items[int(random.random() * len(self._items))]


class AtRandom:
    """Any node: what kube-proxy does with connections."""

    def __init__(self, nodes: Sequence[int], random: Random) -> None:
        self._nodes = _Bag(nodes)
        self._random = random

    def choose(self) -> int | None:
        return self._nodes.any(self._random) if len(self._nodes) else None

    def done(self, node: int) -> None:
        """Nobody counts."""

    def add(self, node: int) -> None:
        self._nodes.add(node)

    def remove(self, node: int) -> None:
        self._nodes.discard(node)


class RoundRobin:
    """One after the other, whatever they have to do. Several balancers begin at different nodes."""

    def __init__(self, nodes: Sequence[int], random: Random) -> None:
        self._nodes = list(nodes)
        self._next = int(random.random() * len(self._nodes))

    def choose(self) -> int | None:
        if not self._nodes:
            return None
        self._next = (self._next + 1) % len(self._nodes)
        return self._nodes[self._next]

    def done(self, node: int) -> None:
        """Nobody counts."""

    def add(self, node: int) -> None:
        if node not in self._nodes:
            self._nodes.append(node)

    def remove(self, node: int) -> None:
        if node in self._nodes:
            self._nodes.remove(node)


class LeastRequest:
    """A node with the fewest requests that this balancer waits for: HAProxy's leastconn, NGINX's least_conn."""

    def __init__(self, nodes: Sequence[int], random: Random) -> None:
        self._random = random
        self._sent = dict.fromkeys(nodes, 0)
        self._there = set(nodes)
        self._by_count = [_Bag(nodes)]
        self._least = 0

    def least(self) -> int:
        """How many requests the node with the fewest has of this balancer; 0 without nodes: nothing is waited for."""
        if not self._there:
            return 0
        while not len(self._by_count[self._least]):
            self._least += 1
        return self._least

    def choose(self) -> int | None:
        if not self._there:
            return None
        self.least()
        node = self._by_count[self._least].any(self._random)
        self._move(node, 1)
        return node

    def done(self, node: int) -> None:
        self._move(node, -1)

    def add(self, node: int) -> None:
        self._sent.setdefault(node, 0)
        self._there.add(node)
        self._put(node)

    def remove(self, node: int) -> None:
        self._there.discard(node)
        self._by_count[self._sent[node]].discard(node)

    def _move(self, node: int, step: int) -> None:
        self._by_count[self._sent[node]].discard(node)
        self._sent[node] += step
        self._put(node)

    def _put(self, node: int) -> None:
        if node not in self._there:
            return
        count = self._sent[node]
        while len(self._by_count) <= count:
            self._by_count.append(_Bag())
        self._by_count[count].add(node)
        self._least = min(self._least, count)


class TwoChoices:
    """The one with fewer requests of two taken at random: Envoy's least_request."""

    def __init__(self, nodes: Sequence[int], random: Random) -> None:
        self._random = random
        self._nodes = _Bag(nodes)
        self._sent = dict.fromkeys(nodes, 0)

    def choose(self) -> int | None:
        if not len(self._nodes):
            return None
        first, second = self._nodes.any(self._random), self._nodes.any(self._random)
        node = first if self._sent[first] <= self._sent[second] else second
        self._sent[node] += 1
        return node

    def done(self, node: int) -> None:
        self._sent[node] -= 1

    def add(self, node: int) -> None:
        self._sent.setdefault(node, 0)
        self._nodes.add(node)

    def remove(self, node: int) -> None:
        self._nodes.discard(node)


POLICIES: Final = {
    "random": AtRandom,
    "round robin": RoundRobin,
    "two choices": TwoChoices,
    "least request": LeastRequest,
}
