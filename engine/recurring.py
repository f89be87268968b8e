"""What is kept of things that come again: from the second time on, as long as it is used."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recurring(Generic[K, V]):
    """Values by keys, most of which never come again; one thread at a time.

    Args:
        most: values that are kept; the one that was not used for longest goes.
        met: keys that are remembered as met once.
        is_eager: keep what comes for the first time, too, while most come again.
    """

    def __init__(self, most: int, met: int, *, is_eager: bool = False) -> None:
        self._most, self._most_met = most, met
        self._kept: OrderedDict[K, V] = OrderedDict()
        self._met: set[int] = set()
        self._is_eager = is_eager
        self._asked = self._again = 0

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, key: K) -> V | None:
        """What is kept."""
        value = self._kept.get(key)
        if value is not None:
            self._kept.move_to_end(key)
            self._asked += 1
            self._again += 1
        return value

    def comes_again(self, key: K) -> bool:
        """Whether what belongs to a key is worth keeping: it was met before, or most others were."""
        number = hash(key)
        is_again = number in self._met
        self._asked += 1
        self._again += is_again
        if is_again:
            return True
        if len(self._met) >= self._most_met:
            self._met.clear()
        self._met.add(number)
        return self._is_eager and 2 * self._again >= self._asked

    def keep(self, key: K, value: V) -> None:
        """Find this from now on."""
        self._kept[key] = value
        self._kept.move_to_end(key)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def clear(self) -> None:
        """Forget what is kept; what was met is still worth keeping when it comes again."""
        self._kept.clear()
