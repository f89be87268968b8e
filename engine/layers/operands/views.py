"""Views of an array's memory by numbers that a file gives: the one place where layers make them.

numpy trusts whoever strides: a wrong number reads what is not the array's. Here both ends of a view, the first and the
last element it can reach, are worked out in Python integers and held against the array before numpy sees anything.
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
    """Refuse strides that lead out of ``total`` elements, at either end; None where only a run can tell how many.

    Args:
        size, stride: of every dimension; strides count elements.
        offset: the element the view begins with.

    Raises:
        ShapeError: naming the element that is not there.
    """
    if len(size) != len(stride) or any(dim < 0 for dim in size):
        found = f"{show_shape(size)} and {show_shape(stride)}"
        raise ShapeError("size and stride do not fit", found=found)
    if 0 in size:  # nothing is read; PyTorch still refuses to begin in front of the tensor
        first, last = min(offset, 0), -1
    else:
        steps = [(dim - 1) * step for dim, step in zip(size, stride, strict=True)]
        first = offset + sum(step for step in steps if step < 0)
        last = offset + sum(step for step in steps if step > 0)
    if first < 0:
        raise ShapeError("strides reach in front of the elements", found=f"element {first}", expected="at least 0")
    if total is not None and last >= total:
        raise ShapeError("strides reach past the elements", found=f"element {last}", expected=f"below {total}")


def strided(flat: Array, size: Sequence[int], stride: Sequence[int], offset: int = 0) -> Array:
    """A read-only view of a contiguous vector: out[i, j, ...] = flat[offset + i * stride[0] + j * stride[1] + ...].

    Raises:
        ShapeError: where that is not an element.
    """
    if flat.ndim != 1 or not flat.flags.c_contiguous:
        raise ShapeError("only a contiguous vector can be strided", found=show_shape(flat.shape))
    check_reach(size, stride, offset, flat.size)
    check_size(size, flat.dtype)
    if 0 in size:
        return flat[:0].reshape(size)
    # The offset is inside: as_strided() would take one beyond the end for an empty array, and read all the same.
    steps = [step * flat.itemsize for step in stride]
    return np.lib.stride_tricks.as_strided(flat[offset:], size, steps, writeable=False)


def sliding(array: AnyArray, extents: Sequence[int], axes: Sequence[int]) -> AnyArray:
    """Every window of these extents on these axes, as a read-only view; the windows' own axes come last.

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
    """A diagonal of each plane (first, second), as the last axis: a read-only view; empty where there is none."""
    rows, columns = array.shape[first], array.shape[second]
    # numpy computes with C integers: of an offset beyond the matrix only that it is beyond matters.
    return np.diagonal(array, max(min(offset, columns), -rows), first, second)
