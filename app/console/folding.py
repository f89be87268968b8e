"""Folding of long graphs into blocks, by structure or by module names, and of repeated blocks.

What is folded are units: operators, or kernels with their fused operators. By structure, a block has one input and one
output value. A block is a range of units in execution order, so a drawing of blocks has no cycles either.

Names of operators are paths if the converter kept them (``layer1.0.conv1``, ``/layer1/layer1.0/conv1/Conv``). An
operator without a path, such as a sum, belongs to the common module of its neighbours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any, Final

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


# Maximum length of a block.
_LONGEST: Final = 160
_LONGEST_PERIOD: Final = 4
# Longer blocks may have inner blocks.
_LONG: Final = 10
# Smaller graphs are not folded.
_FEW: Final = 12
# Minimum number of units of a folded repetition.
_LEAST: Final = 3


@dataclass(frozen=True, slots=True)
class Fold:
    """Range of units, first to last, that may be shown as one box.

    Attributes:
        repeats: number of repetitions of its pattern; 1 for a block.
        children: inner folds; other units stand alone.
    """

    first: int
    last: int
    repeats: int = 1
    children: tuple[Fold, ...] = field(default=())

    @property
    def id(self) -> str:
        """Return the id used in queries, stable for a graph."""
        return f"{self.first}-{self.last}"

    @property
    def length(self) -> int:
        """Return the number of units."""
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """Properties of units needed for folding.

    Attributes:
        kind: equal for similar units.
        size: differs between stages.
        is_source: whether a unit is a constant, which may be used anywhere.
        is_tail: whether a unit belongs to its predecessor, such as an activation.
    """

    kind: Callable[[int], str]
    size: Callable[[int], str]
    is_source: Callable[[int], bool]
    is_tail: Callable[[int], bool]


def find_folds(web: Web, traits: Traits) -> tuple[Fold, ...]:
    """Return the outermost folds in order."""
    if len(web.units) <= _FEW:
        return ()
    return _Folder(web, traits).find(0, len(web.units) - 1)


class _Folder:
    def __init__(self, web: Web, traits: Traits) -> None:
        count = len(web.units)
        self._traits = traits
        self._inputs: list[list[int]] = [[] for _ in range(count)]
        self._last_use = list(range(count))
        # Values with several users, and units with several values.
        self._forks, values = [False] * count, [0] * count
        for _, source, targets in web.links:
            self._last_use[source] = max(self._last_use[source], targets[-1])
            values[source] += 1
            if not traits.is_source(source):
                self._forks[source] |= len(targets) > 1
                for target in targets:
                    self._inputs[target].append(source)
        self._splits = [each > 1 for each in values]

    def find(self, first: int, last: int) -> tuple[Fold, ...]:
        """Return the folds within a range."""
        items = _items(self._blocks(first, last), first, last)
        return find_runs(items, [signature(self._traits, item) for item in items])

    def _blocks(self, first: int, last: int) -> list[Fold]:
        """Return the shortest consecutive ranges that fork and join, with one input and one output."""
        found, start = list[Fold](), first
        while start <= last:
            end = self._end(start, last) if self._begins(start) else None
            if end is None or (start, end) == (first, last):
                start += 1
                continue
            inner = self.find(start, end) if end - start >= _LONG else ()
            found.append(Fold(start, end, 1, inner))
            start = end + 1
        return found

    def _begins(self, start: int) -> bool:
        return self._splits[start] or any(self._forks[source] for source in self._inputs[start])

    def _end(self, start: int, last: int) -> int | None:
        outside: set[int] = set()
        reach, has_joined = start, False
        for end in range(start, min(last + 1, start + _LONGEST)):
            outside.update(source for source in self._inputs[end] if source < start)
            if len(outside) > 1:
                return None
            has_joined |= len(set(self._inputs[end])) > 1
            if end > start:
                reach = max(reach, self._last_use[end - 1] if not self._traits.is_source(end - 1) else end)
            if has_joined and reach <= end:
                return self._with_tail(end, last)
        return None

    def _with_tail(self, end: int, last: int) -> int:
        following = end + 1
        while following <= last and self._traits.is_tail(following) and self._inputs[following] == [following - 1]:
            if self._last_use[following - 1] != following:
                break
            following += 1
        return following - 1


def signature(traits: Traits, item: Fold) -> str:
    """Return the pattern of a fold; within a stage, one block may change the number of channels."""
    units = range(item.first, item.last + 1)
    kinds = [traits.kind(unit) for unit in units if not traits.is_source(unit)]
    names = kinds if item.length == 1 else sorted(set(kinds))
    return " ".join([*names, traits.size(item.last)])


def _items(blocks: Sequence[Fold], first: int, last: int) -> list[Fold]:
    """Return blocks and single units between them, in order."""
    items, at = list[Fold](), first
    for block in blocks:
        items += [Fold(unit, unit) for unit in range(at, block.first)]
        items.append(block)
        at = block.last + 1
    return [*items, *(Fold(unit, unit) for unit in range(at, last + 1))]


def find_runs(items: Sequence[Fold], signatures: Sequence[str]) -> tuple[Fold, ...]:
    """Return repetitions as folds; blocks without repetition stay."""
    found, at = list[Fold](), 0
    while at < len(items):
        period, repeats = _run(signatures, at)
        covered = items[at : at + period * repeats]
        if repeats > 1 and covered[-1].last - covered[0].first + 1 >= _LEAST:
            turns = [_pattern(covered[turn * period : (turn + 1) * period]) for turn in range(repeats)]
            inner = tuple(turn for turn in turns if turn.length > 1)
            found.append(Fold(covered[0].first, covered[-1].last, repeats, inner))
        else:
            covered = covered[:1]
            found += [covered[0]] if covered[0].length > 1 else []
        at += len(covered)
    return tuple(found)


def _pattern(items: Sequence[Fold]) -> Fold:
    """Return one repetition of a pattern, with inner blocks if there are several items."""
    if len(items) == 1:
        return items[0]
    return Fold(items[0].first, items[-1].last, 1, tuple(item for item in items if item.length > 1))


def _run(signatures: Sequence[str], at: int) -> tuple[int, int]:
    """Return the shortest period of a repeated pattern and the number of repetitions; (1, 1) for none."""
    for period in range(1, min(_LONGEST_PERIOD, (len(signatures) - at) // 2) + 1):
        pattern, repeats = signatures[at : at + period], 1
        while signatures[at + repeats * period : at + (repeats + 1) * period] == pattern:
            repeats += 1
        if repeats > 1:
            return period, repeats
    return 1, 1


Path = tuple[str, ...]
# Minimum share and number of units with a path for folding by names.
_LEAST_SHARE: Final = 0.3
_LEAST_UNITS: Final = 2
# Maximum nesting depth.
_DEEPEST: Final = 12
# Prefixes of names generated by the converter.
_MADE_UP: Final = ("F.", "torch.", "nn.", "Tensor.", "pnnx", "node_", "val_")
_ENDING: Final = re.compile(r"_\d+$")


def module_of(name: str) -> Path | None:
    """Return the module in an operator's name, or None."""
    if name.startswith(_MADE_UP):
        return None
    if name.startswith("/"):  # each scope repeats its parent, and the last word is the type
        found: list[str] = []
        for word in name.strip("/").split("/")[:-1]:
            found += _ENDING.sub("", word).removeprefix(".".join(found) + ".").split(".")
        return tuple(found) or None
    return tuple(name.split(".")[:-1]) or None


def find_modules(
    paths: Sequence[Path | None], signature: Callable[[Fold], str], is_apart: Callable[[int], bool]
) -> tuple[Fold, ...] | None:
    """Return the outermost folds in order; None if too few names are paths.

    Args:
        paths: path of every unit, or None.
        signature: equal for similar folds.
        is_apart: whether a unit belongs to no module: inputs and outputs.
    """
    if sum(path is not None for path in paths) < max(_LEAST_UNITS, _LEAST_SHARE * len(paths)):
        return None
    full = _filled(paths, is_apart)
    return _find(full, signature, 0, len(full) - 1, 0)


def _filled(paths: Sequence[Path | None], is_apart: Callable[[int], bool]) -> list[Path]:
    """Return a path for every unit: its own, or the common prefix of its neighbours'."""
    before, behind = list[Path](), list[Path]()
    for found, turn in ((before, range(len(paths))), (behind, range(len(paths) - 1, -1, -1))):
        last: Path = ()
        for at in turn:
            last = paths[at] or last
            found.append(last)
    behind.reverse()
    return [
        () if is_apart(at) else path or _shared(before[at], behind[at])
        for at, path in enumerate(paths)
    ]  # fmt: skip


def _shared(one: Path, other: Path) -> Path:
    same = [a == b for a, b in zip(one, other, strict=False)]
    return one[: (*same, False).index(False)]


def _find(
    paths: Sequence[Path], signature: Callable[[Fold], str], first: int, last: int, depth: int
) -> tuple[Fold, ...]:
    """Return the folds of a range with equal paths down to a depth."""
    if depth >= _DEEPEST:
        return ()
    items, at = list[Fold](), first
    while at <= last:
        end = at
        while end < last and paths[at][depth : depth + 1] == paths[end + 1][depth : depth + 1] != ():
            end += 1
        if (at, end) == (first, last) and end > at:
            return _find(paths, signature, first, last, depth + 1)
        inner = _find(paths, signature, at, end, depth + 1) if end > at else ()
        items.append(Fold(at, end, 1, inner))
        at = end + 1
    return find_runs(items, [_list_signature(item, paths, signature, depth) for item in items])


def _list_signature(item: Fold, paths: Sequence[Path], signature: Callable[[Fold], str], depth: int) -> str:
    """Return a signature equal for similar numbered modules of a list, and unique for others."""
    word = paths[item.first][depth : depth + 1]
    # Units between modules of a list belong to the list itself.
    is_alike = not word or (item.length > 1 and word[0].isdigit())
    return f"{'.'.join(paths[item.first][:depth])} {signature(item)}" if depth and is_alike else f"only {item.first}"
