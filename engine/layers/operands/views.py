"""Views of an array's memory by numbers from a file: the only module where layers make them.

numpy does not check strides: a wrong number reads memory outside the array. Here both ends of a view, the first and the
last element it can reach, are computed with Python integers and checked against the array before numpy uses them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.errors import ShapeError
from engine.ir.strided import AnyArray
from engine.limits import check_size, show_shape
from engine.tensor import Array, Dim


def check_reach(size: Sequence[int], stride: Sequence[int], offset: int, total: Dim) -> None:
    """Refuse strides that leave ``total`` elements at either end; None if their number is unknown before a run.

    Args:
        size, stride: of every dimension; strides count elements.
        offset: the first element of the view.

    Raises:
        ShapeError: naming the element out of range.
    """
    if len(size) != len(stride) or any(dim < 0 for dim in size):
        found = f"{show_shape(size)} and {show_shape(stride)}"
        raise ShapeError("size and stride do not fit", found=found)
    if 0 in size:  # nothing is read; PyTorch still refuses a negative offset
        first, last = min(offset, 0), -1
    else:
        steps = [(dim - 1) * step for dim, step in zip(size, stride, strict=True)]
        first = offset + sum(step for step in steps if step < 0)
        last = offset + sum(step for step in steps if step > 0)
    if first < 0:
        raise ShapeError("strides reach before the first element", found=f"element {first}", expected="at least 0")
    if total is not None and last >= total:
        raise ShapeError("strides reach past the last element", found=f"element {last}", expected=f"below {total}")


def strided(flat: Array, size: Sequence[int], stride: Sequence[int], offset: int = 0) -> Array:
    """Return a read-only view of a contiguous vector: out[i, j, ...] = flat[offset + i*stride[0] + j*stride[1] + ...].

    Raises:
        ShapeError: an element is out of range.
    """
    if flat.ndim != 1 or not flat.flags.c_contiguous:
        raise ShapeError("only a contiguous vector can be strided", found=show_shape(flat.shape))
    check_reach(size, stride, offset, flat.size)
    check_size(size, flat.dtype)
    if 0 in size:
        return flat[:0].reshape(size)
    # The offset is in range: as_strided() does not check it, even for an empty array.
    steps = [step * flat.itemsize for step in stride]
    return np.lib.stride_tricks.as_strided(flat[offset:], size, steps, writeable=False)


def sliding(array: AnyArray, extents: Sequence[int], axes: Sequence[int]) -> AnyArray:
    """Return all windows of these extents on these axes, as a read-only view; the windows' own axes come last.

    Raises:
        ShapeError: a window is empty or longer than its axis.
    """
    for extent, axis in zip(extents, axes, strict=True):
        if not 0 <= extent <= array.shape[axis]:
            expected = f"at most {array.shape[axis]}"
            raise ShapeError("window is longer than the axis", found=extent, expected=expected)
    view: Callable[..., Any] = np.lib.stride_tricks.sliding_window_view  # its types do not know meta tensors
    windows: AnyArray = view(array, tuple(extents), axis=tuple(axes))
    return windows


def diagonal(array: Array, offset: int, first: int, second: int) -> Array:
    """Return a diagonal of each plane (first, second) as the last axis: a read-only view, possibly empty."""
    rows, columns = array.shape[first], array.shape[second]
    # numpy computes with C integers, so an offset beyond the matrix is clipped.
    return np.diagonal(array, max(min(offset, columns), -rows), first, second)
