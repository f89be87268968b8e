"""Load balancers, each with only the state that it sees."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final, Protocol


class Balancer(Protocol):
    """Load balancer that sends requests to the nodes it knows."""

    def choose(self) -> int | None:
        """Return a node and count the request as sent; None without nodes."""

    def done(self, node: int) -> None:
        """Note that a request is answered or lost."""

    def add(self, node: int) -> None:
        """Add a node."""

    def remove(self, node: int) -> None:
        """Remove a node."""


class _Bag:
    """Set with random choice of an item."""

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
    """Random node, as kube-proxy chooses for connections."""

    def __init__(self, nodes: Sequence[int], random: Random) -> None:
        self._nodes = _Bag(nodes)
        self._random = random

    def choose(self) -> int | None:
        return self._nodes.any(self._random) if len(self._nodes) else None

    def done(self, node: int) -> None:
        """Do nothing: this balancer does not count requests."""

    def add(self, node: int) -> None:
        self._nodes.add(node)

    def remove(self, node: int) -> None:
        self._nodes.discard(node)


class RoundRobin:
    """Nodes in turn, whatever their load. Several balancers begin at different nodes."""

    def __init__(self, nodes: Sequence[int], random: Random) -> None:
        self._nodes = list(nodes)
        self._next = int(random.random() * len(self._nodes))

    def choose(self) -> int | None:
        if not self._nodes:
            return None
        self._next = (self._next + 1) % len(self._nodes)
        return self._nodes[self._next]

    def done(self, node: int) -> None:
        """Do nothing: this balancer does not count requests."""

    def add(self, node: int) -> None:
        if node not in self._nodes:
            self._nodes.append(node)

    def remove(self, node: int) -> None:
        if node in self._nodes:
            self._nodes.remove(node)


class LeastRequest:
    """Node with the fewest open requests of this balancer: HAProxy's leastconn, NGINX's least_conn."""

    def __init__(self, nodes: Sequence[int], random: Random) -> None:
        self._random = random
        self._sent = dict.fromkeys(nodes, 0)
        self._there = set(nodes)
        self._by_count = [_Bag(nodes)]
        self._least = 0

    def least(self) -> int:
        """Return the fewest open requests of a node of this balancer; 0 without nodes."""
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
    """Node with fewer open requests of two random ones: Envoy's least_request."""

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
