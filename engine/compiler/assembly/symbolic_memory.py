"""Memory plan with symbolic sizes, valid for all of them by construction.

Which tensor is larger depends on the sizes, so bytes cannot be packed as ``memory.plan_memory`` does. Tensors with
disjoint lifetimes share a *slot*, which is as large as its largest tensor; slots lie one after the other. The hints
decide which tensors share: good for sizes near the hints, and valid for every size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from engine.compiler.assembly.memory import SHARED_SHARE, Lifetime, MemoryPlan, aligned, find_lifetimes
from engine.compiler.codegen.host import Memory
from engine.compiler.lowering.steps import Step
from engine.compiler.storage import Frame, Storage, View
from engine.ir.dims import hint, is_same, largest


@dataclass(slots=True)
class _Slot:
    """Memory that several tensors use one after the other.

    Args:
        frame: of all its tensors, if reserved for images of equal borders.
    """

    frame: Frame | None = None
    is_apart: bool = False
    tensors: list[tuple[Storage, Lifetime]] = field(default_factory=list)

    def is_free(self, life: Lifetime) -> bool:
        """Return whether none of its tensors is in use at that time."""
        return not any(each.overlaps(life) for _, each in self.tensors)

    @property
    def bytes(self) -> int:
        """Return its size."""
        return aligned(largest(*(storage.bytes for storage, _ in self.tensors)))

    def is_unclean(self, storage: Storage, life: Lifetime) -> bool:
        """Return whether the border of a tensor may have been overwritten.

        It is clean if a tensor of an equal frame used the memory last, or if all its tensors have that frame.
        """
        if all(_is_alike(each.frame, storage.frame) for each, _ in self.tensors):
            return False
        before = [(other.last, each) for each, other in self.tensors if other.last < life.first]
        return not before or not _is_alike(max(before, key=lambda pair: pair[0])[1].frame, storage.frame)


def plan_symbolic_memory(steps: Sequence[Step], kept: Iterable[View], caches: Memory) -> MemoryPlan:
    """Plan the arena; offsets and bytes are symbolic sizes.

    Args:
        kept: views that are read after the last step.
        caches: of the target processor.
    """
    lifetimes = find_lifetimes(steps, kept)
    slots: list[_Slot] = []
    for storage in sorted(lifetimes, key=lambda each: (-hint(each.bytes), lifetimes[each].first)):
        _slot_for(storage, lifetimes[storage], slots, SHARED_SHARE * caches.second_bytes).tensors.append(
            (storage, lifetimes[storage])
        )
    slots.sort(key=lambda slot: not slot.is_apart)
    offsets: dict[Storage, int] = {}
    unclean: set[Storage] = set()
    clean: list[tuple[int, int]] = []
    end = 0
    for slot in slots:
        begin, end = end, end + slot.bytes
        zeroed = [(storage, life) for storage, life in slot.tensors if storage.is_zeroed]
        dirty = {storage for storage, life in zeroed if slot.is_unclean(storage, life)}
        offsets |= {storage: begin for storage, _ in slot.tensors}
        unclean |= dirty
        if len(dirty) < len(zeroed):
            clean.append((begin, end))
    return MemoryPlan(offsets, lifetimes, end, frozenset(unclean), tuple(clean))


def _slot_for(storage: Storage, life: Lifetime, slots: list[_Slot], shared_bytes: float) -> _Slot:
    """Return the slot of a tensor, given in descending size: the smallest free one, else a new one."""
    is_apart = storage.is_zeroed and (storage.frame is None or hint(storage.bytes) < shared_bytes)
    frame = storage.frame if is_apart else None
    for slot in reversed(slots):
        if slot.is_apart == is_apart and _is_alike(slot.frame, frame) and slot.is_free(life):
            return slot
    slots.append(_Slot(frame, is_apart))
    return slots[-1]


def _is_alike(a: Frame | None, b: Frame | None) -> bool:
    """Return whether two frames are equal for all sizes."""
    return a is b or (a is not None and b is not None and is_same(a.numbers, b.numbers))
