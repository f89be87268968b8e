"""Folding of long graphs: blocks with one input and one output value, and repetitions of similar blocks.

A block is a range in execution order, so a drawing of blocks has no cycles either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from app.console.units import Web

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
