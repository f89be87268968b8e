"""Axes as PyTorch counts them, and their sizes, which may be open.

A negative axis counts from the end; a 0-dim tensor has one axis for this purpose.
"""

from __future__ import annotations

from engine.errors import ShapeError
from engine.tensor import Dim, Shape


def checked_axis(dim: int, rank: int) -> int:
    """The axis ``dim`` stands for, counted from the front.

    Raises:
        ShapeError: when a tensor of this rank has no such axis.
    """
    limit = max(rank, 1)
    if not -limit <= dim < limit:
        raise ShapeError("dim is out of range", found=dim, expected=f"{-limit} to {limit - 1}")
    return dim % limit


def may_equal(a: Dim, b: Dim) -> bool:
    """Whether two sizes can be the same in a run."""
    return a is None or b is None or a == b


def may_match(a: Shape, b: Shape) -> bool:
    """Whether two shapes can be the same in a run."""
    return len(a) == len(b) and all(map(may_equal, a, b))
