"""What is kept of things that come again: from the second time on, as long as it is used."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recurring(Generic[K, V]):
    """Values by keys, most of which never come again; one thread at a time.

    Args:
        most: values that are kept; the one that was not used for longest goes.
        met: keys that are remembered as met once.
    """

    def __init__(self, most: int, met: int) -> None:
        self._most, self._most_met = most, met
        self._kept: OrderedDict[K, V] = OrderedDict()
        self._met: set[int] = set()
        self._asked: Counter[Hashable] = Counter()
        self._again: Counter[Hashable] = Counter()

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, key: K, kind: Hashable = None) -> V | None:
        """What is kept.

        Args:
            kind: of the key, of which most may come again.
        """
        value = self._kept.get(key)
        if value is not None:
            self._kept.move_to_end(key)
            self._count(kind, is_again=True)
        return value

    def comes_again(self, key: K, kind: Hashable = None) -> bool:
        """Whether it is worth to keep what belongs to a key: it was met before, or most of its kind were."""
        number = hash(key)
        is_again = number in self._met
        self._count(kind, is_again=is_again)
        if is_again:
            return True
        if len(self._met) >= self._most_met:
            self._met.clear()
        self._met.add(number)
        return 2 * self._again[kind] >= self._asked[kind] > 0

    def _count(self, kind: Hashable, *, is_again: bool) -> None:
        if kind is not None:
            self._asked[kind] += 1
            self._again[kind] += is_again

    def keep(self, key: K, value: V) -> None:
        """Find this from now on."""
        self._kept[key] = value
        self._kept.move_to_end(key)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def clear(self) -> None:
        """Forget what is kept; what was met is still worth keeping when it comes again."""
        self._kept.clear()
