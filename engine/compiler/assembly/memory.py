"""Memory plan: one arena for everything a run writes; storages with disjoint lifetimes share bytes.

The less memory a run uses, the more of it is still cached when it is used again. So large images share bytes with any
tensor, and their zero borders are cleared again after another tensor has overwritten them. Small images with a border
share only with storages of equal frames, which write the same inner elements, so their borders are cleared once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from engine.compiler.addresses import MemorySpace
from engine.compiler.codegen.host import Memory
from engine.compiler.lowering.steps import KernelStep, Step
from engine.compiler.storage import ALIGNMENT, Frame, Storage, View

# Share of the L2 cache. Larger images with borders may share memory with any tensor.
SHARED_SHARE = 1 / 4


@dataclass(frozen=True, slots=True)
class Lifetime:
    """First and last step during which a storage is in use."""

    first: int
    last: int

    def overlaps(self, other: Lifetime) -> bool:
        """Return whether both are in use at the same time."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Offset of every storage of the arena, in bytes, and size of the arena.

    Args:
        unclean: storages whose border may be overwritten before they are first written.
        clean: ranges of bytes that must be zero before the first run.
    """

    offsets: dict[Storage, int]
    lifetimes: dict[Storage, Lifetime]
    bytes: int
    unclean: frozenset[Storage]
    clean: tuple[tuple[int, int], ...]


def plan_memory(steps: Sequence[Step], kept: Iterable[View], caches: Memory) -> MemoryPlan:
    """Plan the arena.

    Args:
        kept: views that are read after the last step.
        caches: of the target processor.
    """
    lifetimes = find_lifetimes(steps, kept)
    offsets: dict[Storage, int] = {}
    shared_bytes = SHARED_SHARE * caches.second_bytes
    end = _place_apart([each for each in lifetimes if _is_apart(each, shared_bytes)], lifetimes, offsets)
    placed: list[tuple[int, int, Storage]] = []
    for storage in sorted(lifetimes, key=lambda each: (-each.bytes, lifetimes[each].first)):
        if storage in offsets:
            continue
        life, at = lifetimes[storage], 0
        meanwhile = [(low, high) for low, high, each in placed if lifetimes[each].overlaps(life)]
        for low, high in sorted([(0, end), *meanwhile]):
            if at + storage.bytes <= low:
                break
            at = max(at, high)
        offsets[storage] = at
        placed.append((at, aligned(at + storage.bytes), storage))
    unclean = frozenset(each for _, _, each in placed if each.is_zeroed and _is_unclean(each, placed, lifetimes))
    clean = [(low, high) for low, high, each in placed if each.is_zeroed and each not in unclean]
    if end:
        clean.append((0, end))
    return MemoryPlan(offsets, lifetimes, max([end, *(high for _, high, _ in placed)]), unclean, tuple(clean))


def find_lifetimes(steps: Sequence[Step], kept: Iterable[View]) -> dict[Storage, Lifetime]:
    """Return the lifetime of each storage of the arena; arguments as for ``plan_memory``."""
    first: dict[Storage, int] = {}
    last: dict[Storage, int] = {}
    touched = [(index, storage) for index, step in enumerate(steps) for storage in storages_of(step)]
    for index, storage in (*touched, *((len(steps), view.storage) for view in kept)):
        if storage.space is MemorySpace.ARENA:
            first.setdefault(storage, index)
            last[storage] = index
    return {storage: Lifetime(index, last[storage]) for storage, index in first.items()}


def storages_of(step: Step) -> list[Storage]:
    """Return all storages a step reads or writes."""
    if isinstance(step, KernelStep):
        return [each.storage for each in step.pointers]
    return [view.storage for view in (*step.inputs, *step.outputs) if view is not None]


def _is_apart(storage: Storage, shared_bytes: float) -> bool:
    """Return whether a storage shares memory only with storages of equal frames."""
    return storage.is_zeroed and (storage.frame is None or storage.bytes < shared_bytes)


def _place_apart(storages: Sequence[Storage], lifetimes: dict[Storage, Lifetime], offsets: dict[Storage, int]) -> int:
    """Place the storages that share only with equal frames at the beginning; return their end."""
    end = 0
    slots: dict[Frame | None, list[tuple[int, int]]] = {}
    for storage in sorted(storages, key=lambda each: lifetimes[each].first):
        life = lifetimes[storage]
        places = slots.setdefault(storage.frame, [])
        for index, (offset, last) in enumerate(places):
            if last < life.first:
                places[index] = offset, life.last
                offsets[storage] = offset
                break
        else:
            places.append((end, life.last))
            offsets[storage] = end
            end = aligned(end + storage.bytes)
    return end


def _is_unclean(
    storage: Storage, placed: Sequence[tuple[int, int, Storage]], lifetimes: dict[Storage, Lifetime]
) -> bool:
    """Return whether a border may have been overwritten.

    It is clean if a storage of an equal frame used the memory last. If nothing used it earlier in this run, it is clean
    only if nothing else ever uses it, because an earlier run may have stopped anywhere.
    """
    low, high = next(each[:2] for each in placed if each[2] is storage)
    sharing = [each for each in placed if each[0] < high and low < each[1]]
    others = [each for each in sharing if (each[0], each[2].frame) != (low, storage.frame)]
    before = [each for each in sharing if lifetimes[each[2]].last < lifetimes[storage].first]
    if not others:
        return False
    return not before or max(before, key=lambda each: lifetimes[each[2]].last) in others


def aligned(size: int) -> int:
    """Return a size rounded up to whole cache lines."""
    return -(-size // ALIGNMENT) * ALIGNMENT
