"""Program cache: instances that are kept ready to run, for all graphs of the process.

Programs share a budget of bytes, and the least recently used are evicted. The instance for the shapes of a graph's file
stays as long as its session. A new instance evicts only others that have not run for a minute; otherwise it is not
kept, and the reference answers. Without that rule, more shapes than fit would evict each other and be compiled again
and again.

Programs of a template (see ``docs/symbolic-sizes.md``) share code, weights and arenas. They count as one entry, and
are evicted together.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from engine.compile_metrics import METER
from engine.compiler.runtime.instance import Instance, TemplateInstances
from engine.compiler.runtime.program import Program

# A program that ran within this time is not evicted, unless only machine code may answer.
IDLE_S: Final = 60.0


def weight(program: Program) -> int:
    """Return the bytes that an instance of a program takes: arena, packed weights, code of its own, tables."""
    return program.arena_bytes + program.fixed_bytes


Kept = TypeVar("Kept", Instance, TemplateInstances)


@dataclass(slots=True, eq=False, weakref_slot=True)
class Entry(Generic[Kept]):
    """Instance that is kept, or all instances of a template.

    Args:
        evict: removes it from its owner, and ends its threads; a weak reference, which keeps no owner alive.
        is_own: whether it is for the shapes of the graph's file.
    """

    instance: Kept
    bytes: int
    evict: weakref.WeakMethod[Callable[[Entry[Kept]], None]]
    is_own: bool = False


class ProgramCache:
    """Entries of all graphs of the process; safe for many threads."""

    def __init__(self) -> None:
        self._entries: weakref.WeakSet[Entry[Any]] = weakref.WeakSet()
        self._lock = threading.Lock()

    def has_room(self, size: int, limit: int) -> bool:
        """Return whether an entry of this size would be kept within a limit of bytes."""
        with self._lock:
            return self._victims(size, limit, must=False) is not None

    def add(self, entry: Entry[Any], limit: int, *, must: bool = False) -> bool:
        """Keep an entry, and evict others to make room; return whether it is kept.

        Args:
            must: evict recently run entries too; the entry fits by itself.
        """
        with self._lock:
            victims = [] if entry.is_own else self._victims(entry.bytes, limit, must=must)
            if victims is None:
                return False
            self._entries.difference_update(victims)
            self._entries.add(entry)
        for each in victims:
            evict = each.evict()
            if evict is not None:
                evict(each)
        return True

    def discard(self, entry: Entry[Any]) -> None:
        """Remove an entry."""
        with self._lock:
            self._entries.discard(entry)

    @property
    def bytes(self) -> int:
        """Return the bytes of entries for shapes other than the files'."""
        with self._lock:
            return self._bytes()

    @property
    def total(self) -> tuple[int, int]:
        """Return the number of all entries, including the files' own shapes, and their bytes."""
        with self._lock:
            return len(self._entries), sum(each.bytes for each in self._entries)

    def _bytes(self) -> int:
        return sum(each.bytes for each in self._entries if not each.is_own)

    def _victims(self, size: int, limit: int, *, must: bool) -> list[Entry[Any]] | None:
        """Choose the least recently used entries that make room; None if too few may be evicted."""
        victims: list[Entry[Any]] = []
        free, idle_since = limit - self._bytes(), time.monotonic() - IDLE_S
        if free >= size:
            return victims
        for each in sorted((each for each in self._entries if not each.is_own), key=lambda each: each.instance.used_s):
            if free >= size or (each.instance.used_s > idle_since and not must):
                break
            victims.append(each)
            free += each.bytes
        return victims if free >= size else None


CACHE: Final = ProgramCache()
METER.read_cache = lambda: CACHE.total
