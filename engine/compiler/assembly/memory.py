"""Memory plan: one arena for everything a run writes; storages with disjoint lifetimes share bytes.

The less memory a run uses, the more of it is still cached when it is used again. So large images share bytes with any
tensor, and their zero borders are cleared again after another tensor has overwritten them. Small images with a border
share only with storages of equal frames, which write the same inner elements, so their borders are cleared once.

With symbolic sizes, which tensor is larger depends on the sizes, so bytes cannot be packed. Tensors with disjoint
lifetimes share a *slot*, which is as large as its largest tensor; slots lie one after the other. The hints decide which
tensors share: good for sizes near the hints, and valid for every size.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from engine.compiler.addresses import MemorySpace
from engine.compiler.codegen.host import Host, Memory
from engine.compiler.kernels.images.border import Border, Bordered
from engine.compiler.lowering.steps import KernelStep, Pointer, Step
from engine.compiler.storage import ALIGNMENT, Frame, Storage, View
from engine.ir.dims import hint, is_same, largest

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
    end = _plan_separately([each for each in lifetimes if each.is_apart(shared_bytes)], lifetimes, offsets)
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


def _plan_separately(
    storages: Sequence[Storage], lifetimes: dict[Storage, Lifetime], offsets: dict[Storage, int]
) -> int:
    """Place the storages that share only with equal frames at the beginning; return their end."""
    end = 0
    slots: dict[Frame | None, list[tuple[int, int]]] = {}
    for storage in sorted(storages, key=lambda each: lifetimes[each].first):
        life = lifetimes[storage]
        taken = slots.setdefault(storage.frame, [])
        for index, (offset, last) in enumerate(taken):
            if last < life.first:
                taken[index] = offset, life.last
                offsets[storage] = offset
                break
        else:
            taken.append((end, life.last))
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


def with_borders_cleared(
    steps: Sequence[Step], unclean: Collection[Storage], host: Host, *, is_apart: bool = False
) -> list[Step]:
    """Return the steps, with borders of ``unclean``, and those not of zeros, written by the first step of the storage.

    Args:
        is_apart: whether to clear them in separate steps, so that kernels do not depend on it.
    """
    result: list[Step] = []
    written = [storage for step in steps for storage in storages_of(step)]
    pending = {*unclean, *(each for each in written if each.frame is not None and each.frame.fill)}
    for step in steps:
        found = [storage for storage in dict.fromkeys(storages_of(step)) if storage in pending]
        pending.difference_update(found)
        for storage in found:
            if storage.frame is None:
                continue
            is_double = storage.meta.dtype.itemsize == 8
            border = _border(storage.frame, host.of_doubles if is_double else host)
            if isinstance(step, KernelStep) and not is_apart:
                step = _bordered(step, border, storage)
            else:
                result.append(KernelStep(kernel=border, pointers=(Pointer(storage),), operators=_operators(step)))
        result.append(step)
    return result


def _operators(step: Step) -> tuple[str, ...]:
    return step.operators[:1] if isinstance(step, KernelStep) else (step.operator.name,)


def _border(frame: Frame, host: Host) -> Border:
    sizes = {"batch": frame.batch, "rows": frame.rows, "columns": frame.columns, "pitch": frame.pitch}
    return Border(**sizes, border=frame.border, fill=frame.fill, host=host)


def _bordered(step: KernelStep, border: Border, storage: Storage) -> KernelStep:
    kernel = Bordered(host=border.host, inner=step.kernel, border=border, arguments=len(step.pointers))
    return replace(step, kernel=kernel, pointers=(*step.pointers, Pointer(storage)))


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
    is_apart = storage.is_apart(shared_bytes)
    frame = storage.frame if is_apart else None
    for slot in reversed(slots):
        if slot.is_apart == is_apart and _is_alike(slot.frame, frame) and slot.is_free(life):
            return slot
    slots.append(_Slot(frame, is_apart))
    return slots[-1]


def _is_alike(a: Frame | None, b: Frame | None) -> bool:
    """Return whether two frames are equal for all sizes."""
    return a is b or (a is not None and b is not None and is_same(a.numbers, b.numbers))
