"""Views as batches of matrices.

The last two dimensions are the matrix; the batch dimensions before them are merged or split where all operands allow
it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from engine.compiler.kernels.map import merge_loops
from engine.compiler.kernels.products.matrix import Matrix
from engine.compiler.lowering.steps import NotLoweredError, derived
from engine.compiler.storage import View

if TYPE_CHECKING:
    pass


def merge_batch(lead: Sequence[int], views: Sequence[View]) -> tuple[tuple[int, ...], list[Matrix]]:
    """Return the sizes of a batch with merged dimensions, and the strides of each view in it.

    Args:
        views: of at least two dimensions; the batch dimensions broadcast to ``lead``.
    """
    wide = [view.meta.broadcast_to((*lead, *view.shape[-2:])) for view in views]
    strides = [[step // each.itemsize for step in each.strides[: len(lead)]] for each in wide]
    loops = merge_loops(lead, strides)
    matrices = []
    for index, view in enumerate(views):
        row, column = view.strides[-2:]
        matrices.append(Matrix(tuple(steps[index] for _, steps in loops), row, column))
    return tuple(size for size, _ in loops), matrices


def batch_splits(stack: Sequence[int], finer: Sequence[int]) -> list[tuple[int, ...]] | None:
    """Return the finer dimensions that each batch dimension is split into; None where that is not possible."""
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


def split_batch(view: View, stack: Sequence[int], finer: Sequence[int]) -> View:
    """Return a view of matrices whose batch dimensions are split into finer ones.

    Raises:
        NotLoweredError: that is not possible.
    """
    lead = view.shape[:-2]
    if not lead or tuple(stack) == tuple(finer):
        return view
    parts = batch_splits(stack, finer)
    if parts is None:
        raise NotLoweredError("its batch dimensions cannot be split so")
    held = zip(lead, parts[len(parts) - len(lead) :], strict=True)
    sizes = [size for dim, part in held for size in (part if dim != 1 else (1,) * len(part))]
    return derived(view, view.meta.reshape((*sizes, *view.shape[-2:])))
