"""A long graph as few boxes: blocks that one value enters and one value leaves, and runs of blocks that are alike.

A block is a stretch of the order of execution, so a drawing of blocks is a graph without cycles again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from app.console.units import Web

# Blocks longer than this are not looked for.
_LONGEST: Final = 160
_LONGEST_PERIOD: Final = 4
# Blocks of more units may have blocks within.
_LONG: Final = 10
# Graphs of fewer units are shown as they are.
_FEW: Final = 12
# The fewest units that a repetition must cover to be folded.
_LEAST: Final = 3


@dataclass(frozen=True, slots=True)
class Fold:
    """A stretch of units, first to last, that may be shown as one box.

    repeats: how often its pattern comes, 1 of a block.
    children: folds within; what belongs to none of them stands by itself.
    """

    first: int
    last: int
    repeats: int = 1
    children: tuple[Fold, ...] = field(default=())

    @property
    def id(self) -> str:
        """What it is called in a query: the same as long as the graph is."""
        return f"{self.first}-{self.last}"

    @property
    def length(self) -> int:
        """How many units."""
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What folding must know of units.

    kind: what makes two of them alike.
    size: what makes two blocks belong to different stages.
    is_source: whether one is a constant, which may be used anywhere.
    is_tail: whether one belongs to what it follows, such as an activation.
    """

    kind: Callable[[int], str]
    size: Callable[[int], str]
    is_source: Callable[[int], bool]
    is_tail: Callable[[int], bool]


def find_folds(web: Web, traits: Traits) -> tuple[Fold, ...]:
    """The outermost folds, in order."""
    if len(web.units) <= _FEW:
        return ()
    return _Folder(web, traits).find(0, len(web.units) - 1)


class _Folder:
    def __init__(self, web: Web, traits: Traits) -> None:
        count = len(web.units)
        self._traits = traits
        self._inputs: list[list[int]] = [[] for _ in range(count)]
        self._last_use = list(range(count))
        # A value that several use; a unit that makes several values.
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
        """Folds within a stretch."""
        items = _items(self._blocks(first, last), first, last)
        return find_runs(items, [signature(self._traits, item) for item in items])

    def _blocks(self, first: int, last: int) -> list[Fold]:
        """The shortest stretches, one after the other, that fork and join, with one way in and one way out."""
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
    """What it is made of; of blocks of one stage one may change the number of channels with another step."""
    units = range(item.first, item.last + 1)
    kinds = [traits.kind(unit) for unit in units if not traits.is_source(unit)]
    told = kinds if item.length == 1 else sorted(set(kinds))
    return " ".join([*told, traits.size(item.last)])


def _items(blocks: Sequence[Fold], first: int, last: int) -> list[Fold]:
    """Blocks and what stands between them, in order: a single unit is a fold of one."""
    items, at = list[Fold](), first
    for block in blocks:
        items += [Fold(unit, unit) for unit in range(at, block.first)]
        items.append(block)
        at = block.last + 1
    return [*items, *(Fold(unit, unit) for unit in range(at, last + 1))]


def find_runs(items: Sequence[Fold], signatures: Sequence[str]) -> tuple[Fold, ...]:
    """Runs of one pattern as a fold each; blocks that are repeated by nobody stay."""
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
    """One turn of a pattern; the blocks in it stay blocks where it is more than one of them."""
    if len(items) == 1:
        return items[0]
    return Fold(items[0].first, items[-1].last, 1, tuple(item for item in items if item.length > 1))


def _run(signatures: Sequence[str], at: int) -> tuple[int, int]:
    """The shortest period of a pattern that is repeated from here on, and how often it comes; (1, 1) for none."""
    for period in range(1, min(_LONGEST_PERIOD, (len(signatures) - at) // 2) + 1):
        pattern, repeats = signatures[at : at + period], 1
        while signatures[at + repeats * period : at + (repeats + 1) * period] == pattern:
            repeats += 1
        if repeats > 1:
            return period, repeats
    return 1, 1
