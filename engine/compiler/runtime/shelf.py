"""What is kept ready to run: the instances of all graphs of the process, weighed in bytes.

The instance for the shapes of its file is kept as long as its session; all others share a budget. When it is full, a
newcomer takes the place of those that were run clearly less often, or it is not kept. So more shapes than fit, in turn
or at random, do not push each other out for ever: some of them stay, and the reference answers for the rest.

What was made in no time for shapes that have come once or twice, as the sizes of pictures do, has a small part of the
budget: the oldest goes. It is made again if its shapes come again, and stays when they have come often enough.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Final

from engine.compiler.runtime.instance import Instance
from engine.compiler.runtime.program import Program
from engine.figures import METER
from engine.limits import memory_bytes

# The part of the memory there is that instances may take where nobody says how much.
SHARE: Final = 1 / 4
# Runs that are counted of one instance; beyond it, more make no difference.
MOST_USES: Final = 255
# Bytes for what was made in no time and has not run so often; of ten thousand sizes at random some come twice.
PASSING_BYTES: Final = 16 << 20
OFTEN: Final = 3
# What is fixed for every program and for every step of it: tables, names, the code's own bookkeeping.
_PROGRAM_BYTES: Final = 64 << 10
_STEP_BYTES: Final = 4 << 10


def weight(program: Program) -> int:
    """Bytes that an instance of a program takes: arena, packed weights, code that is its alone, tables."""
    plan = program.blueprint
    fixed = len(plan.steps) * _STEP_BYTES + _PROGRAM_BYTES
    return plan.arena_bytes + plan.constants.nbytes + program.code.bytes + fixed


def default_bytes() -> int:
    """The budget where nobody says another one."""
    return int(memory_bytes() * SHARE)


@dataclass(slots=True, eq=False, weakref_slot=True)
class Kept:
    """An instance that is kept.

    Args:
        drop: forgets it where it is kept, and sends its threads home.
        uses: runs of it, or wishes for it before it was made; fewer as others become more.
        is_own: whether it is for the shapes of the graph's file.
        is_quick: whether it is made again in no time.
        number: the later it was kept the larger.
    """

    instance: Instance
    bytes: int
    drop: Callable[[Kept], None]
    uses: int = 0
    is_own: bool = False
    is_quick: bool = False
    number: int = 0

    @property
    def is_passing(self) -> bool:
        """Whether it may never run again, and can go without a loss."""
        return self.is_quick and self.uses < OFTEN and not self.is_own

    def use(self) -> Instance:
        """The instance, about to be run."""
        if self.uses < MOST_USES:
            self.uses += 1
        return self.instance


class Shelf:
    """Decides what is kept; many threads may ask at once."""

    def __init__(self) -> None:
        self._kept: weakref.WeakSet[Kept] = weakref.WeakSet()
        self._numbers = count(1)
        self._lock = threading.Lock()

    def admits(self, size: int, uses: int, limit: int) -> bool:
        """Whether an instance of this size, wanted so often, would be kept within a limit of bytes."""
        with self._lock:
            return self._victims(size, uses, limit) is not None

    def add(self, kept: Kept, limit: int, *, must: bool = False) -> bool:
        """Keep an instance, and drop those that make room for it; whether it is kept.

        Args:
            must: keep it however often it was run; it fits by itself.
        """
        with self._lock:
            victims = [] if kept.is_own else self._victims(kept.bytes, math.inf if must else kept.uses, limit)
            if victims is None:
                return False
            self._kept.difference_update(victims)
            kept.number = next(self._numbers)
            self._kept.add(kept)
            passed = self._passed()
            self._kept.difference_update(passed)
            victims = [*victims, *passed]
        for each in victims:
            each.drop(each)
        return True

    def discard(self, kept: Kept) -> None:
        """Keep an instance no longer."""
        with self._lock:
            self._kept.discard(kept)

    def fade(self) -> None:
        """Halve all uses, so that what was popular once does not stay for ever."""
        with self._lock:
            for each in self._kept:
                each.uses //= 2

    @property
    def uses(self) -> tuple[int, int]:
        """The sum of uses, and of how many instances."""
        with self._lock:
            return sum(each.uses for each in self._kept), len(self._kept)

    @property
    def bytes(self) -> int:
        """What instances of other shapes than the files' take."""
        with self._lock:
            return self._bytes()

    @property
    def total(self) -> tuple[int, int]:
        """How many instances are kept, those of the files' own shapes among them, and the bytes they take."""
        with self._lock:
            return len(self._kept), sum(each.bytes for each in self._kept)

    def _bytes(self) -> int:
        return sum(each.bytes for each in self._kept if not each.is_own)

    def _passed(self) -> list[Kept]:
        """Those that have had their time."""
        passing = sorted((each for each in self._kept if each.is_passing), key=lambda each: each.number)
        total, found = sum(each.bytes for each in passing), []
        for each in passing[:-1]:
            if total <= PASSING_BYTES:
                break
            found.append(each)
            total -= each.bytes
        return found

    def _victims(self, size: int, uses: float, limit: int) -> list[Kept] | None:
        """Whom to drop for an instance, the least used first; None where it is not worth it, or does not fit at all."""
        victims: list[Kept] = []
        free = limit - self._bytes()
        if free >= size:
            return victims
        for each in sorted((each for each in self._kept if not each.is_own), key=lambda each: each.uses):
            if free >= size or not is_clearly_more(uses, each.uses):
                break
            victims.append(each)
            free += each.bytes
        return victims if free >= size else None


def is_clearly_more(uses: float, others: int) -> bool:
    """Whether something is wanted so much more often that it cannot be chance."""
    return uses > 2 * others + 8


SHELF: Final = Shelf()
METER.kept = lambda: SHELF.total
