"""Views as stacks of matrices: the last two dimensions, and those in front merged where all of them allow it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.compiler.kernels.map import merge_loops
from engine.compiler.kernels.products.matrix import Matrix
from engine.compiler.lowering.declining import NotLoweredError
from engine.compiler.storage import View


def stacked(lead: Sequence[int], views: Sequence[View]) -> tuple[tuple[int, ...], list[Matrix]]:
    """Views as matrices repeated over the dimensions ``lead``: sizes of the merged stack, and where each lies.

    Args:
        views: of two dimensions or more, those in front broadcast to ``lead``.
    """
    wide = [np.broadcast_to(view.phantom, (*lead, *view.shape[-2:])) for view in views]
    strides = [[step // each.itemsize for step in each.strides[: len(lead)]] for each in wide]
    loops = merge_loops(lead, strides)
    matrices = []
    for index, view in enumerate(views):
        row, column = view.strides[-2:]
        matrices.append(Matrix(tuple(steps[index] for _, steps in loops), row, column))
    return tuple(size for size, _ in loops), matrices


def derived(view: View, phantom: np.ndarray) -> View:
    """The view another numpy view of this one stands for.

    Raises:
        NotLoweredError: numpy had to copy.
    """
    found = view.derive(phantom)
    if found is None:
        raise NotLoweredError("an operand does not lie in matrices")
    return found
