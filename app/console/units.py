"""Units of a drawn graph: operators, or kernels with their fused operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any

from app.render.description import Description


@dataclass(frozen=True, slots=True)
class Unit:
    """Operators of a card by index; the first is its head."""

    members: tuple[int, ...]

    @property
    def head(self) -> int:
        """Return the operator that gives the card its name and type."""
        return self.members[0]


@dataclass(frozen=True, slots=True)
class Web:
    """Units in a valid execution order, and the values between them.

    Attributes:
        links: operand, producing unit and using units, without values inside a unit.
    """

    units: tuple[Unit, ...]
    links: tuple[tuple[str, int, tuple[int, ...]], ...]


def weave(description: Description, rows: Sequence[Mapping[str, Any]], *, fused: bool) -> Web:
    """Return the units of a graph.

    Args:
        description: description of the graph.
        rows: the engine's description of operators, with fusion.
        fused: whether a kernel is one unit, and removed operators are hidden.
    """
    owner = _owners(rows, description) if fused else list(range(len(rows)))
    order = _ordered(owner, description)
    while isinstance(order, int):  # fused operators depend on one in between: draw that unit separately
        owner = [at if head == order else head for at, head in enumerate(owner)]
        order = _ordered(owner, description)
    order = _constants_where_used(order, owner, description)
    place = {head: at for at, head in enumerate(order)}
    members: dict[int, list[int]] = {head: [head] for head in order}
    for at, head in enumerate(owner):
        if at != head:
            members[head].append(at)
    units = tuple(Unit(tuple(members[head])) for head in order)
    return Web(units, tuple(_links(description, [place[head] for head in owner])))


def _owners(rows: Sequence[Mapping[str, Any]], description: Description) -> list[int]:
    """Return for each operator the head of its kernel; removed operators join their replacement."""
    places = {row["name"]: at for at, row in enumerate(rows)}
    owners = [places.get(str(row.get("fused_into")), at) for at, row in enumerate(rows)]
    owners = [owner if owners[owner] == owner else at for at, owner in enumerate(owners)]
    users: dict[int, list[int]] = {}
    for _, producer, consumers in description.links():
        users.setdefault(producer, []).extend(consumers)
    leaders = {owner for at, owner in enumerate(owners) if owner != at}
    for at in sorted(users, reverse=True):
        heads = {owners[user] for user in users[at]}
        if rows[at].get("kernel") == "removed" and len(heads) == 1 and at not in leaders:
            owners[at] = heads.pop()
            leaders.add(owners[at])
    return owners


def _ordered(owner: Sequence[int], description: Description) -> list[int] | int:
    """Return the heads in topological order, or a head that is part of a cycle."""
    needs: dict[int, set[int]] = {head: set() for head in owner}
    for _, producer, users in description.links():
        for user in users:
            if owner[user] != owner[producer]:
                needs[owner[user]].add(owner[producer])
    feeds: dict[int, list[int]] = {head: [] for head in needs}
    for head, sources in needs.items():
        for source in sources:
            feeds[source].append(head)
    last = {head: at for at, head in enumerate(owner)}
    waiting = {head: len(sources) for head, sources in needs.items()}
    ready = [(last[head], head) for head, count in waiting.items() if not count]
    heapify(ready)
    order = list[int]()
    while ready:
        _, head = heappop(ready)
        order.append(head)
        for target in feeds[head]:
            waiting[target] -= 1
            if not waiting[target]:
                heappush(ready, (last[target], target))
    # Units of one operator cannot form cycles: all links lead forwards.
    joined = {head for at, head in enumerate(owner) if at != head}
    return next((head for head, count in waiting.items() if count and head in joined), order)


def _constants_where_used(order: Sequence[int], owner: Sequence[int], description: Description) -> list[int]:
    """Return the order with each constant right before its first user, so that both are in one range."""
    place = {head: at for at, head in enumerate(order)}
    first: dict[int, int] = {}
    for _, producer, users in description.links():
        if description.operators[producer].type == "pnnx.Attribute":
            users_at = [place[owner[user]] for user in users]
            first[owner[producer]] = min([first.get(owner[producer], len(order)), *users_at])
    return sorted(order, key=lambda head: (first.get(head, place[head]), head not in first, place[head]))


def _links(description: Description, unit_of: Sequence[int]) -> list[tuple[str, int, tuple[int, ...]]]:
    found = []
    for name, producer, users in description.links():
        source = unit_of[producer]
        targets = tuple(sorted({unit_of[user] for user in users} - {source}))
        if targets:
            found.append((name, source, targets))
    return found
