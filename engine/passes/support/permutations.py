"""Layers that only move elements, and their permutations."""

from __future__ import annotations

from typing import Final

import numpy as np

from engine.layers import Layer
from engine.layers.shape.permute import MoveDim, Permute, Reversal, Transpose
from engine.layers.shape.shape import AtLeast, Flatten, Reshape, ReshapeAs, Squeeze, Unflatten, Unsqueeze
from engine.tensor import Shape, TensorSpec

PERMUTATIONS: Final = frozenset({Permute, Transpose, Reversal, MoveDim})
"""Layers that only reorder the axes."""

VIEWS: Final = (Reshape, ReshapeAs, Flatten, Unflatten, Squeeze, Unsqueeze, AtLeast)
"""Layers that give the same elements, in the same order, another shape."""

_ANY_DTYPE: Final = np.dtype(np.float32)


def order_of(layer: Layer, rank: int) -> tuple[int, ...]:
    """Return, for each axis of a permutation's result, the axis of the input.

    Args:
        layer: of one of PERMUTATIONS, without dynamic parameters.
        rank: of its input.
    """
    spec = layer.infer(TensorSpec(tuple(range(rank)), _ANY_DTYPE))  # every size names its axis
    return tuple(spec.shape)


def is_trivial(order: tuple[int, ...], shape: Shape) -> bool:
    """Return whether a permutation of the axes of a tensor of this shape changes neither elements nor shape."""
    moving = [axis for axis in order if shape[axis] != 1]
    return moving == sorted(moving) and tuple(shape[axis] for axis in order) == shape


def is_certain(shape: Shape) -> bool:
    """Return whether the number of elements determines a shape: at most one dimension is dynamic, and none is zero."""
    return shape.count(None) == 0 or (shape.count(None) == 1 and 0 not in shape)
