"""Views as stacks of matrices: the last two dimensions, and those in front merged or cut where all of them allow it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from engine.compiler.kernels.map import merge_loops
from engine.compiler.kernels.products.matrix import Matrix
from engine.compiler.lowering.declining import NotLoweredError
from engine.compiler.storage import View
from engine.ir.strided import Strided


def stacked(lead: Sequence[int], views: Sequence[View]) -> tuple[tuple[int, ...], list[Matrix]]:
    """Views as matrices repeated over the dimensions ``lead``: sizes of the merged stack, and where each lies.

    Args:
        views: of two dimensions or more, those in front broadcast to ``lead``.
    """
    wide = [view.phantom.broadcast_to((*lead, *view.shape[-2:])) for view in views]
    strides = [[step // each.itemsize for step in each.strides[: len(lead)]] for each in wide]
    loops = merge_loops(lead, strides)
    matrices = []
    for index, view in enumerate(views):
        row, column = view.strides[-2:]
        matrices.append(Matrix(tuple(steps[index] for _, steps in loops), row, column))
    return tuple(size for size, _ in loops), matrices


def derived(view: View, phantom: Strided) -> View:
    """The view another numpy view of this one stands for.

    Raises:
        NotLoweredError: numpy had to copy.
    """
    found = view.derive(phantom)
    if found is None:
        raise NotLoweredError("an operand does not lie in matrices")
    return found


def cuts(stack: Sequence[int], finer: Sequence[int]) -> list[tuple[int, ...]] | None:
    """The dimensions of a finer stack that each of a stack is cut into; None where it is no such stack."""
    found: list[tuple[int, ...]] = []
    rest = list(finer)
    for size in stack:
        taken: list[int] = []
        while rest and (math.prod(taken) != size or not taken):
            taken.append(rest.pop(0))
        if math.prod(taken) != size or not taken:
            return None
        found.append(tuple(taken))
    if found and all(size == 1 for size in rest):
        return [*found[:-1], (*found[-1], *rest)]
    return None if rest else found


def cut(view: View, stack: Sequence[int], finer: Sequence[int]) -> View:
    """A view of matrices that broadcast to a stack, its dimensions cut into those of a finer one.

    Raises:
        NotLoweredError: that is none.
    """
    lead = view.shape[:-2]
    if not lead or tuple(stack) == tuple(finer):
        return view
    parts = cuts(stack, finer)
    if parts is None:
        raise NotLoweredError("its matrices are not those of the finer stack")
    held = zip(lead, parts[len(parts) - len(lead) :], strict=True)
    sizes = [size for dim, part in held for size in (part if dim != 1 else (1,) * len(part))]
    return derived(view, view.phantom.reshape((*sizes, *view.shape[-2:])))
