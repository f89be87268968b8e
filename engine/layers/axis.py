"""Axes as PyTorch counts them: from the end when negative; a 0-dim tensor has one axis for this purpose."""

from __future__ import annotations

from engine.errors import ShapeError


def checked_axis(dim: int, rank: int) -> int:
    """The axis ``dim`` stands for, counted from the front.

    Raises:
        ShapeError: when a tensor of this rank has no such axis.
    """
    limit = max(rank, 1)
    if not -limit <= dim < limit:
        raise ShapeError("dim is out of range", found=dim, expected=f"{-limit} to {limit - 1}")
    return dim % limit
