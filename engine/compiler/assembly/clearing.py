"""Clearing of borders that other tensors have overwritten, by the step that first writes the image again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from engine.compiler.assembly.memory import storages_of
from engine.compiler.codegen.host import Host
from engine.compiler.kernels.images.border import Border, Bordered
from engine.compiler.lowering.steps import KernelStep, Pointer, Step
from engine.compiler.storage import Frame, Storage


def with_borders_cleared(
    steps: Sequence[Step], unclean: Collection[Storage], host: Host, *, is_apart: bool = False
) -> list[Step]:
    """Return the steps, with each border of ``unclean`` cleared by the first step that uses the storage.

    Args:
        is_apart: whether to clear them in separate steps, so that kernels do not depend on it.
    """
    result: list[Step] = []
    pending = set(unclean)
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
    return Border(
        batch=frame.batch, rows=frame.rows, columns=frame.columns, pitch=frame.pitch, border=frame.border, host=host
    )


def _bordered(step: KernelStep, border: Border, storage: Storage) -> KernelStep:
    kernel = Bordered(host=border.host, inner=step.kernel, border=border, arguments=len(step.pointers))
    return replace(step, kernel=kernel, pointers=(*step.pointers, Pointer(storage)))
