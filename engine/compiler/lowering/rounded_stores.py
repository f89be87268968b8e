"""Results that only one product of bfloat16 reads are stored as bfloat16, instead of rounded by a step of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from engine.compiler.kernels.kernel import Kernel
from engine.compiler.kernels.numbers import BFLOAT16, FLOAT
from engine.compiler.lowering.steps import KernelStep, Pointer, Step
from engine.compiler.storage import Storage, View


@dataclass(frozen=True, slots=True)
class RoundingStep:
    """Step that rounds floats to bfloat16 in the same layout: an element lies at half the distance from the begin."""

    step: KernelStep
    source: Storage
    target: Storage


def store_rounded(steps: Sequence[Step], roundings: Sequence[RoundingStep], results: Collection[Storage]) -> list[Step]:
    """Return the steps without those whose source one kernel stores, which can store bfloat16, and no other step reads.

    Args:
        results: memory that is read after the run.
    """
    uses = Counter(storage for step in steps for storage in _storages(step))
    makers = {step.result.storage: step for step in steps if isinstance(step, KernelStep) and step.result is not None}
    changed: dict[int, KernelStep | None] = {}
    for each in roundings:
        maker = makers.get(each.source)
        if maker is None or uses[each.source] != 2 or each.source in results:
            continue
        kernel = _rounding(maker.kernel)
        if kernel is not None:
            changed[id(maker)] = _moved(changed.get(id(maker)) or maker, kernel, each)
            changed[id(each.step)] = None
    found = (changed.get(id(step), step) for step in steps)
    return [step for step in found if step is not None]


def _storages(step: Step) -> Iterator[Storage]:
    """Yield the memory of every operand of a step."""
    if isinstance(step, KernelStep):
        yield from (each.storage for each in step.pointers)
    else:
        yield from (each.storage for each in (*step.inputs, *step.outputs) if isinstance(each, View))


def _rounding(kernel: Kernel) -> Kernel | None:
    """Return a kernel with results in bfloat16; None for one that does not store floats through an epilogue."""
    epilogue = getattr(kernel, "epilogue", None)
    if epilogue is None or epilogue.dtype != FLOAT or kernel.precision != "float":
        return None
    others = epilogue.dtypes[1:] or (FLOAT,) * len(epilogue.operands)
    changed: Kernel = replace(kernel, epilogue=replace(epilogue, dtypes=(BFLOAT16, *others)))  # type: ignore[call-arg]
    return changed


def _moved(step: KernelStep, kernel: Kernel, rounding: RoundingStep) -> KernelStep:
    """Return the step of a kernel that stores to the target of a rounding."""

    def moved(each: Pointer) -> Pointer:
        return Pointer(rounding.target, each.offset // 2) if each.storage is rounding.source else each

    return replace(
        step, kernel=kernel, pointers=tuple(map(moved, step.pointers)), bytes=step.bytes - rounding.target.bytes
    )
