"""Axes in PyTorch's numbering, and their sizes, which may be dynamic.

A negative dim counts from the end; a 0-dim tensor has one axis for this purpose.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.errors import ShapeError
from engine.tensor import Dim, Shape, format_shape


def checked_axis(dim: int, rank: int) -> int:
    """Return the axis ``dim`` counted from the front.

    Raises:
        ShapeError: when a tensor of this rank has no such axis.
    """
    limit = max(rank, 1)
    if not -limit <= dim < limit:
        raise ShapeError("dim is out of range", found=dim, expected=f"{-limit} to {limit - 1}")
    return dim % limit


def checked_axes(dims: Iterable[int], rank: int) -> tuple[int, ...]:
    """Return the axes ``dims`` counted from the front, in the given order.

    Raises:
        ShapeError: when a tensor of this rank lacks one of them, or one is given twice.
    """
    axes = tuple(checked_axis(dim, rank) for dim in dims)
    if len(set(axes)) != len(axes):
        raise ShapeError("a dim is given twice", found=list(axes))
    return axes


def checked_order(dims: Iterable[int], rank: int) -> tuple[int, ...]:
    """Return a permutation of all axes, counted from the front.

    Raises:
        ShapeError: when it does not name every axis once.
    """
    axes = checked_axes(dims, rank) if rank else tuple(dims)
    if len(axes) != rank:
        raise ShapeError("a permutation must name every dim once", found=list(axes), expected=f"{rank} dims")
    return axes


def replaced(shape: Shape, axis: int, *dims: int | None) -> Shape:
    """Return a shape with one axis replaced by any number of others."""
    return (*shape[:axis], *dims, *shape[axis + 1 :])


def sizes(shape: Shape) -> tuple[int, ...]:
    """Return a shape without dynamic dimensions.

    Raises:
        ShapeError: a dimension is dynamic during a run, as the file omits a size.
    """
    known = tuple(dim for dim in shape if dim is not None)
    if len(known) != len(shape):
        raise ShapeError("a size is missing", found=format_shape(shape), expected="numbers")
    return known


def may_equal(a: Dim, b: Dim) -> bool:
    """Return whether two sizes can be equal in a run."""
    return a is None or b is None or a == b


def may_match(a: Shape, b: Shape) -> bool:
    """Return whether two shapes can be equal in a run."""
    return len(a) == len(b) and all(map(may_equal, a, b))
