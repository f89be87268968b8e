"""One arena for everything a run writes: lifetimes decide which storages may share bytes.

Storages whose border must stay zero share only with storages of equal geometry: whoever comes next writes the same
inner elements, so the border is cleared once, when the arena is made, and never again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from engine.compiler.blueprint import Home
from engine.compiler.lowering.steps import KernelStep, Step
from engine.compiler.storage import ALIGNMENT, Storage, View


@dataclass(frozen=True, slots=True)
class Lifetime:
    """The steps during which a storage holds something: both ends included."""

    first: int
    last: int

    def overlaps(self, other: Lifetime) -> bool:
        """Whether both hold something at one time."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Where every storage of the arena begins, in bytes, and how long the arena is."""

    offsets: dict[Storage, int]
    lifetimes: dict[Storage, Lifetime]
    bytes: int


def plan_memory(steps: Sequence[Step], kept: Iterable[View]) -> MemoryPlan:
    """Lay out the arena.

    Args:
        kept: views that are read after the last step.
    """
    lifetimes = _lifetimes(steps, kept)
    offsets: dict[Storage, int] = {}
    end = _place_zeroed(lifetimes, offsets)
    placed: list[tuple[int, int, Lifetime]] = []
    for storage in sorted(lifetimes, key=lambda each: (-each.bytes, lifetimes[each].first)):
        if storage.is_zeroed:
            continue
        life = lifetimes[storage]
        at = end
        for low, high, _ in sorted((each for each in placed if each[2].overlaps(life)), key=lambda each: each[0]):
            if at + storage.bytes <= low:
                break
            at = max(at, high)
        offsets[storage] = at
        placed.append((at, _aligned(at + storage.bytes), life))
    return MemoryPlan(offsets, lifetimes, max([end, *(high for _, high, _ in placed)]))


def _lifetimes(steps: Sequence[Step], kept: Iterable[View]) -> dict[Storage, Lifetime]:
    lifetimes: dict[Storage, Lifetime] = {}

    def touch(storage: Storage, index: int) -> None:
        if storage.home is Home.ARENA:
            known = lifetimes.get(storage, Lifetime(index, index))
            lifetimes[storage] = Lifetime(min(known.first, index), max(known.last, index))

    for index, step in enumerate(steps):
        for storage in storages_of(step):
            touch(storage, index)
    for view in kept:
        touch(view.storage, len(steps))
    return lifetimes


def storages_of(step: Step) -> list[Storage]:
    """All storages a step reads or writes."""
    if isinstance(step, KernelStep):
        return [each.storage for each in step.pointers]
    return [view.storage for view in (*step.inputs, *step.outputs) if view is not None]


def _place_zeroed(lifetimes: dict[Storage, Lifetime], offsets: dict[Storage, int]) -> int:
    """Storages with borders, at the front; the end of them."""
    end = 0
    slots: dict[tuple[object, ...], list[tuple[int, int]]] = {}
    for storage in sorted((each for each in lifetimes if each.is_zeroed), key=lambda each: lifetimes[each].first):
        life = lifetimes[storage]
        places = slots.setdefault(storage.geometry, [])
        for index, (offset, last) in enumerate(places):
            if last < life.first:
                places[index] = offset, life.last
                offsets[storage] = offset
                break
        else:
            places.append((end, life.last))
            offsets[storage] = end
            end = _aligned(end + storage.bytes)
    return end


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
