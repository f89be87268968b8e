"""Meta tensors: shape, strides and offset of an array without elements.

Every operation gives the same as numpy for an array of the same shape and strides, including whether a reshape is a
view or a copy. Sizes, strides and offsets need not be ``int``: they are only added, subtracted, multiplied, divided
with ``//`` and compared, so symbolic sizes work as well. Axes and the rank are always ``int``.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import EllipsisType
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.ir.dims import is_symbolic, largest, smallest

Array: TypeAlias = NDArray[Any]
DType: TypeAlias = np.dtype[Any]
Index: TypeAlias = int | slice | EllipsisType | None
Axes: TypeAlias = int | Iterable[int]


class Memory:
    """Memory region of meta tensors: an identity and a size, without contents.

    Args:
        nbytes: its size.
    """

    __slots__ = ("nbytes",)

    def __init__(self, nbytes: int) -> None:
        self.nbytes: Final = nbytes


class Strided:
    """Immutable array without elements, with numpy's attribute names.

    Args:
        shape: sizes of the dimensions.
        strides: distances along them, in bytes.
        offset: bytes from the beginning of the memory to the first element.
        dtype: element type.
        memory: its memory region.
    """

    __slots__ = ("_is_contiguous", "_size", "dtype", "memory", "offset", "shape", "strides")

    def __init__(
        self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int, dtype: DType, memory: Memory
    ) -> None:
        self.shape: Final = shape
        self.strides: Final = strides
        self.offset: Final = offset
        self.dtype: Final = dtype
        self.memory: Final = memory
        self._size: int | None = None
        self._is_contiguous: bool | None = None

    def __repr__(self) -> str:
        return f"Strided(shape={self.shape}, strides={self.strides}, offset={self.offset}, dtype={self.dtype.name})"

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        if self._size is None:
            self._size = math.prod(self.shape)
        return self._size

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.dtype.itemsize

    @property
    def is_contiguous(self) -> bool:
        """Return whether the elements are contiguous in row-major order: numpy's ``flags.c_contiguous``."""
        if self._is_contiguous is None:
            self._is_contiguous = self.size == 0 or _is_row_major(self.shape, self.strides, self.itemsize)
        return self._is_contiguous

    @property
    def bounds(self) -> tuple[int, int]:
        """Range of bytes of its memory with its elements; meaningless for a tensor without elements."""
        first = last = self.offset
        for size, stride in zip(self.shape, self.strides, strict=True):
            if stride < 0:
                first = first + (size - 1) * stride
            else:
                last = last + (size - 1) * stride
        return first, last + self.dtype.itemsize

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a tensor without dimensions")
        return self.shape[0]

    def __iter__(self) -> Iterator[Strided]:
        return (self[k] for k in range(len(self)))

    def __getitem__(self, index: Index | tuple[Index, ...]) -> Strided:
        items = index if isinstance(index, tuple) else (index,)
        rest = self.ndim - sum(item is not None and item is not ... for item in items)
        if rest < 0:
            raise IndexError(f"too many indices: found {self.ndim - rest}, expected at most {self.ndim}")
        shape: list[int] = []
        strides: list[int] = []
        offset, axis = self.offset, 0
        for item in items:
            if item is None:
                shape.append(1)
                strides.append(0)
            elif item is ...:
                shape += self.shape[axis : axis + rest]
                strides += self.strides[axis : axis + rest]
                axis, rest = axis + rest, 0
            elif isinstance(item, slice):
                start, size, step = _slice_of(item, self.shape[axis])
                offset = offset + start * self.strides[axis]
                shape.append(size)
                strides.append(self.strides[axis] * step)
                axis += 1
            else:
                offset = offset + _index_in(item, self.shape[axis]) * self.strides[axis]
                axis += 1
        return self._seen((*shape, *self.shape[axis:]), (*strides, *self.strides[axis:]), offset)

    def __array__(self, *arguments: object, **options: object) -> None:
        """Refuse to become an array, which numpy would make of anything that has a length.

        Raises:
            TypeError: always.
        """
        raise TypeError("a meta tensor has no elements")

    def __array_function__(
        self, function: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Apply a numpy function to meta tensors; TypeError for functions that do not give views."""
        method = _FUNCTIONS.get(function)
        return NotImplemented if method is None else method(*args, **kwargs)

    def _seen(self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Strided:
        return Strided(shape, strides, offset, self.dtype, self.memory)

    def as_strided(self, shape: Iterable[int], strides: Iterable[int]) -> Strided:
        """Return a view of other sizes and strides with the same beginning; the caller checks its bounds."""
        return self._seen(_numbers(shape), _numbers(strides), self.offset)

    def copy(self) -> Strided:
        """Return a tensor of the same shape in new memory, row-major."""
        return empty(self.shape, self.dtype)

    def conj(self) -> Strided:
        """Return the conjugate: new memory if the elements are complex."""
        return self.copy() if self.dtype.kind == "c" else self

    @property
    def real(self) -> Strided:
        """View of the real parts."""
        return self._part(0) if self.dtype.kind == "c" else self

    @property
    def imag(self) -> Strided:
        """View of the imaginary parts; zeros in new memory if the elements are real."""
        return self._part(1) if self.dtype.kind == "c" else self.copy()

    def _part(self, number: int) -> Strided:
        dtype = np.dtype(f"{self.dtype.byteorder}f{self.dtype.itemsize // 2}")
        return Strided(self.shape, self.strides, self.offset + number * dtype.itemsize, dtype, self.memory)

    def view(self, dtype: DType) -> Strided:
        """Return the same bytes as elements of another type; the last dimension changes with the element size.

        Raises:
            ValueError: the last dimension is not contiguous, or its bytes are not a multiple of the new element.
        """
        dtype = np.dtype(dtype)
        old, new = self.dtype.itemsize, dtype.itemsize
        if old == new:
            return Strided(self.shape, self.strides, self.offset, dtype, self.memory)
        if not self.shape:
            raise ValueError("a tensor without dimensions cannot change its element size")
        last = self.shape[-1] * old
        if last != 0 and self.size != 1 and self.strides[-1] != old:
            raise ValueError("the last dimension must be contiguous for another element size")
        if last % new != 0 or (new < old and old % new != 0):
            raise ValueError(f"the last dimension of {last} bytes does not hold elements of {new} bytes")
        shape, strides = (*self.shape[:-1], last // new), (*self.strides[:-1], new)
        return Strided(shape, strides, self.offset, dtype, self.memory)

    def reshape(self, *shape: int | Iterable[int]) -> Strided:
        """Return the elements in another shape: a view where numpy makes one, else in new memory.

        Args:
            shape: at most one size is -1, which is inferred from the others.

        Raises:
            ValueError: the numbers of elements differ.
        """
        sizes = _completed(_numbers_of(shape), self)
        if _is_same(sizes, self.shape):
            return self
        if self.is_contiguous:
            return self._seen(sizes, _row_major(sizes, self.itemsize), self.offset)
        strides = _reshaped(self, sizes)
        return empty(sizes, self.dtype) if strides is None else self._seen(sizes, strides, self.offset)

    def transpose(self, *axes: int | Iterable[int] | None) -> Strided:
        """Return the dimensions in another order, reversed if none is given.

        Raises:
            ValueError: the axes are not a permutation.
        """
        if not axes or axes[0] is None:
            return self._seen(self.shape[::-1], self.strides[::-1], self.offset)
        order = [_axis_in(axis, self.ndim) for axis in _flat(axes)]
        if sorted(order) != [*range(self.ndim)]:
            raise ValueError(f"axes don't match: found {order}, expected a permutation of {self.ndim} dimensions")
        return self._permuted(order)

    def _permuted(self, order: Sequence[int]) -> Strided:
        shape, strides = self.shape, self.strides
        return self._seen(tuple([shape[axis] for axis in order]), tuple([strides[axis] for axis in order]), self.offset)

    @property
    def T(self) -> Strided:
        """View with the dimensions reversed."""
        return self.transpose()

    def swapaxes(self, axis1: int, axis2: int) -> Strided:
        """Return a view with two dimensions swapped."""
        order = [*range(self.ndim)]
        first, second = _axis_in(axis1, self.ndim), _axis_in(axis2, self.ndim)
        order[first], order[second] = second, first
        return self._permuted(order)

    def moveaxis(self, source: Axes, destination: Axes) -> Strided:
        """Return a view with some dimensions moved to other positions; the others keep their order.

        Raises:
            ValueError: there are not as many sources as destinations, or one is repeated.
        """
        come, go = _axes_in(source, self.ndim), _axes_in(destination, self.ndim)
        if len(come) != len(go):
            raise ValueError(f"source and destination differ in length: found {len(come)} and {len(go)}")
        order = [axis for axis in range(self.ndim) if axis not in come]
        for place, axis in sorted(zip(go, come, strict=True)):
            order.insert(place, axis)
        return self._permuted(order)

    def squeeze(self, axis: Axes | None = None) -> Strided:
        """Return a view without the dimensions of size 1, or without the given ones.

        Raises:
            ValueError: a given dimension is of another size.
        """
        if axis is None:
            dropped = [k for k, size in enumerate(self.shape) if size == 1]
        else:
            dropped = _axes_in(axis, self.ndim)
            if any(self.shape[k] != 1 for k in dropped):
                raise ValueError(f"a dimension to remove is not of size 1: found {self.shape}")
        return self._permuted([k for k in range(self.ndim) if k not in dropped])

    def expand_dims(self, axis: Axes) -> Strided:
        """Return a view with dimensions of size 1 at these positions of the result."""
        count = 1 if _is_number(axis) else len(tuple(axis))  # type: ignore[arg-type]
        places, sizes = _axes_in(axis, self.ndim + count), iter(self.shape)
        return self.reshape([1 if k in places else next(sizes) for k in range(self.ndim + count)])

    def broadcast_to(self, shape: int | Iterable[int]) -> Strided:
        """Return a view that repeats dimensions of size 1, with stride 0, and has new ones in front.

        Raises:
            ValueError: another dimension than one of size 1 would have to change.
        """
        sizes = _numbers_of((shape,))
        lead = len(sizes) - self.ndim
        if lead < 0:
            raise ValueError(f"a tensor has more dimensions than it is broadcast to: {self.shape} to {sizes}")
        strides = [0] * lead
        for own, stride, size in zip(self.shape, self.strides, sizes[lead:], strict=True):
            if own != 1 and own != size:
                raise ValueError(f"a tensor of shape {self.shape} cannot be broadcast to {sizes}")
            strides.append(0 if own == 1 else stride)
        return self._seen(sizes, tuple(strides), self.offset)

    def flip(self, axis: Axes | None = None) -> Strided:
        """Return a view with the elements in reverse order along some dimensions, or along all."""
        axes = range(self.ndim) if axis is None else _axes_in(axis, self.ndim)
        return self[tuple([slice(None, None, -1 if k in axes else None) for k in range(self.ndim)])]

    def split(self, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Strided]:
        """Return equal pieces of a dimension, or the pieces between indices.

        Raises:
            ValueError: the dimension cannot be divided into equal pieces.
        """
        axis = _axis_in(axis, self.ndim)
        if _is_number(indices_or_sections):
            sections: Any = indices_or_sections
            size, rest = self.shape[axis] // sections, self.shape[axis] % sections
            if rest != 0:
                raise ValueError(f"a dimension of {self.shape[axis]} cannot be divided into {sections} equal pieces")
            cuts = [k * size for k in range(1, sections)]
        else:
            cuts = [*indices_or_sections]  # type: ignore[misc]
        lead = (slice(None),) * axis
        ends = zip([0, *cuts], [*cuts, None], strict=True)
        return [self[(*lead, slice(begin, end))] for begin, end in ends]

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Strided:
        """Return a diagonal of each plane (axis1, axis2) as the last dimension of a view.

        Raises:
            ValueError: the two axes are the same.
        """
        first, second = _axis_in(axis1, self.ndim), _axis_in(axis2, self.ndim)
        if first == second:
            raise ValueError("axis1 and axis2 cannot be the same")
        rows, columns = self.shape[first], self.shape[second]
        down, across = self.strides[first], self.strides[second]
        begin = offset * across if offset >= 0 else -offset * down
        rows, columns = (rows, columns - offset) if offset >= 0 else (rows + offset, columns)
        size = rows if rows <= columns else columns
        if size < 0:
            size, begin = 0, 0
        rest = self._permuted([k for k in range(self.ndim) if k not in (first, second)])
        return self._seen((*rest.shape, size), (*rest.strides, down + across), self.offset + begin)

    def sliding_windows(self, window_shape: Axes, axis: Axes | None = None) -> Strided:
        """Return all windows of these sizes as a view; the windows' own dimensions come last.

        Raises:
            ValueError: a window is longer than its dimension, or there are not as many sizes as axes.
        """
        windows = _numbers_of((window_shape,))
        axes = [*range(self.ndim)] if axis is None else [_axis_in(each, self.ndim) for each in _flat((axis,))]
        if len(axes) != len(windows):
            raise ValueError(f"window_shape and axis differ in length: found {len(windows)} and {len(axes)}")
        shape = [*self.shape]
        for each, size in zip(axes, windows, strict=True):
            if size < 0 or shape[each] < size:
                raise ValueError(f"a window of {size} does not fit into {shape[each]}")
            shape[each] = shape[each] - (size - 1)
        strides = [self.strides[each] for each in axes]
        return self._seen((*shape, *windows), (*self.strides, *strides), self.offset)

    def at_least(self, rank: int) -> Strided:
        """Return a view with at least so many dimensions, one to three: numpy's ``atleast_1d`` and the like."""
        missing = rank - self.ndim
        if missing <= 0:
            return self
        if not self.shape:
            return self.reshape((1,) * rank)
        return self[..., None] if missing == 1 and rank == 3 else self[None, :, None] if rank == 3 else self[None]


AnyArray = TypeVar("AnyArray", Array, Strided)
"""An array or a meta tensor, in functions that give one for one."""


def empty(shape: Iterable[int], dtype: DType) -> Strided:
    """Return a row-major meta tensor that fills a new memory region."""
    sizes = _numbers(shape)
    return Strided(sizes, _row_major(sizes, dtype.itemsize), 0, dtype, Memory(math.prod(sizes) * dtype.itemsize))


def _plain(number: Any) -> Any:
    """Return numpy's integers as Python's, which do not overflow; anything else as it is."""
    return operator.index(number) if isinstance(number, np.integer) else number


def _numbers(numbers: Iterable[int]) -> tuple[int, ...]:
    return tuple([_plain(each) for each in numbers])


def _is_number(value: object) -> bool:
    """Return whether an argument is one number, and not several."""
    return not hasattr(value, "__iter__")


def _flat(arguments: Sequence[Any]) -> Sequence[Any]:
    """Return the items of ``f(*items)`` or ``f(items)``."""
    return arguments if len(arguments) != 1 or _is_number(arguments[0]) else tuple(arguments[0])


def _numbers_of(arguments: Sequence[Any]) -> tuple[int, ...]:
    return _numbers(_flat(arguments))


def _axis_in(axis: Any, rank: int) -> int:
    """Return an axis counted from the front.

    Raises:
        AxisError: there is none of that number.
    """
    number = operator.index(axis)
    if not -rank <= number < rank:
        raise np.exceptions.AxisError(number, rank)
    return number + rank if number < 0 else number


def _axes_in(axes: Any, rank: int) -> list[int]:
    found = [_axis_in(axis, rank) for axis in _flat((axes,))]
    if len(set(found)) < len(found):
        raise ValueError(f"an axis is repeated: found {found}")
    return found


def _is_same(shape: Sequence[int], other: Sequence[int]) -> bool:
    return len(shape) == len(other) and all(a == b for a, b in zip(shape, other, strict=True))


def _row_major(shape: Sequence[int], step: int) -> tuple[int, ...]:
    """Return strides without gaps, the last of which is ``step``; dimensions of size 0 count as of size 1."""
    strides = []
    for size in reversed(shape):
        strides.append(step)
        if size != 0:
            step = size * step
    return tuple(reversed(strides))


def _is_row_major(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> bool:
    step = itemsize
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1:
            if stride != step:
                return False
            step = size * step
    return True


def _completed(sizes: tuple[int, ...], x: Strided) -> tuple[int, ...]:
    """Return the sizes of a reshape with -1 replaced.

    Raises:
        ValueError: they do not hold as many elements.
    """
    free = [k for k, size in enumerate(sizes) if size == -1]
    rest = math.prod([size for k, size in enumerate(sizes) if k not in free])
    if len(free) == 1 and rest != 0:
        quotient = x.size // rest
        sizes, rest = (*sizes[: free[0]], quotient, *sizes[free[0] + 1 :]), quotient * rest
    elif free:
        raise ValueError(f"a size is not known: found {sizes}, expected at most one -1, and then no 0")
    if rest != x.size or any(size < 0 for size in sizes):
        raise ValueError(f"cannot reshape a tensor of shape {x.shape} into {sizes}")
    return sizes


def _reshaped(x: Strided, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the strides of a reshape that needs no copy, or None: numpy's ``_attempt_nocopy_reshape``.

    Dimensions of both shapes are grouped so that a group of the old shape holds as many elements as one of the new;
    the old dimensions of a group must lie one in the other.
    """
    old = [(size, stride) for size, stride in zip(x.shape, x.strides, strict=True) if size != 1]
    strides: list[int] = []
    at = 0
    while len(strides) < len(shape) and at < len(old):
        begin, first = at, len(strides)
        mine, its = shape[first], old[begin][0]
        end, at = first + 1, at + 1
        while mine != its:
            if mine < its:
                mine, end = mine * shape[end], end + 1
            else:
                its, at = its * old[at][0], at + 1
        if any(old[k][1] != old[k + 1][0] * old[k + 1][1] for k in range(begin, at - 1)):
            return None
        strides += _row_major(shape[first:end], old[at - 1][1])
    last = strides[-1] if strides else x.itemsize
    return (*strides, *[last] * (len(shape) - len(strides)))  # what is left is of size 1


def _slice_of(piece: slice, size: int) -> tuple[int, int, int]:
    """Return the first element, the number of elements and the step of a slice of a dimension.

    Raises:
        ValueError: the step is zero.
    """
    start, stop, step = piece.start, piece.stop, 1 if piece.step is None else _plain(piece.step)
    if start is None and stop is None and step == 1:
        return 0, size, 1
    if step == 0:
        raise ValueError("slice step cannot be zero")
    if step > 0:
        first = 0 if start is None else _bound(start, size, 0, size)
        span = (size if stop is None else _bound(stop, size, 0, size)) - first
    else:
        first = size - 1 if start is None else _bound(start, size, -1, size - 1)
        span = first - (-1 if stop is None else _bound(stop, size, -1, size - 1))
    if span <= 0:
        return 0, 0, 1
    stride = step if step > 0 else -step
    return first, span if stride == 1 else (span - 1) // stride + 1, step


def _bound(bound: Any, size: int, lowest: int, highest: int) -> int:
    """Return an end of a slice, counted from the front and cut to the dimension."""
    bound = _plain(bound)
    if bound < 0:
        bound = bound + size
        return largest(bound, lowest) if is_symbolic(bound) else lowest if bound < 0 else bound
    return smallest(bound, highest) if is_symbolic((bound, size)) else highest if bound >= size else bound


def _index_in(index: Any, size: int) -> int:
    """Return the element that a number names, counted from the front.

    Raises:
        TypeError: it is an array or a list, whose elements no strides describe.
        IndexError: it is out of range.
    """
    if isinstance(index, bool | np.bool_) or (not isinstance(index, np.integer) and hasattr(index, "__len__")):
        raise TypeError(f"only numbers and slices give views: found {type(index).__name__}")
    index = _plain(index)
    place = index + size if index < 0 else index
    if place < 0 or place >= size:
        raise IndexError(f"index {index} is out of range for a dimension of {size}")
    return place  # type: ignore[no-any-return]


def _reshape(x: Strided, shape: Any, order: str = "C") -> Strided:
    return _in_order(order, x.reshape(shape))


def _ravel(x: Strided, order: str = "C") -> Strided:
    return _in_order(order, x.reshape(-1))


def _in_order(order: str, x: Strided) -> Strided:
    if order != "C":
        raise TypeError(f"meta tensors are reshaped in row-major order only: found {order!r}")
    return x


def _broadcast_to(x: Strided, shape: Any, subok: bool = False) -> Strided:
    return x.broadcast_to(shape)


def _sliding_windows(
    x: Strided, window_shape: Any, axis: Any = None, *, subok: bool = False, writeable: bool = False
) -> Strided:
    return x.sliding_windows(window_shape, axis)


def _at_least(rank: int) -> Callable[..., Any]:
    def grown(*arrays: Strided) -> Strided | tuple[Strided, ...]:
        found = tuple([each.at_least(rank) for each in arrays])
        return found[0] if len(found) == 1 else found

    return grown


# numpy functions that layers call; all others refuse a meta tensor.
_FUNCTIONS: Final[dict[Callable[..., Any], Callable[..., Any]]] = {
    np.atleast_1d: _at_least(1),
    np.atleast_2d: _at_least(2),
    np.atleast_3d: _at_least(3),
    np.broadcast_to: _broadcast_to,
    np.diagonal: Strided.diagonal,
    np.expand_dims: Strided.expand_dims,
    np.flip: Strided.flip,
    np.lib.stride_tricks.sliding_window_view: _sliding_windows,
    np.moveaxis: Strided.moveaxis,
    np.ndim: lambda x: x.ndim,
    np.ravel: _ravel,
    np.reshape: _reshape,
    np.shape: lambda x: x.shape,
    np.size: lambda x: x.size,
    np.split: Strided.split,
    np.squeeze: Strided.squeeze,
    np.swapaxes: Strided.swapaxes,
    np.transpose: Strided.transpose,
}
