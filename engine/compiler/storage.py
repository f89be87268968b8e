"""Where tensors live while a compiled program runs, and views of them.

Logical shapes stay PyTorch's; how a tensor lies in memory is decided once, when its storage is made: channels-last with
an optional border of zeros, or row-major. A view is described by a *phantom*: a numpy array over memory that is never
touched, whose strides say everything. What numpy can express as a view of it (a slice, a permutation, a split
dimension) is a view of the real memory too, and costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.compiler.places import Home
from engine.errors import CompileError
from engine.tensor import Array, DType

# Neighbouring pixels or rows a multiple of this apart fall into few sets of a first-level cache, which takes its sets
# from the bits of an address within a page, whatever the processor.
ALIASING_BYTES = 1024
PAGE_BYTES = 4096
ALIGNMENT = 64
FLOAT32 = np.dtype(np.float32)


_DTYPES: dict[int, DType] = {}


def number_of(dtype: DType) -> int:
    """The number of a dtype in this process."""
    _DTYPES.setdefault(dtype.num, dtype)
    return dtype.num


def dtype_of(number: int) -> DType:
    """The dtype of which ``number_of`` has told the number."""
    return _DTYPES[number]


@dataclass(frozen=True, slots=True)
class Frame:
    """Zeros around channels-last images, which convolutions read.

    Args:
        rows, columns: of an image with its border.
        pitch: floats from pixel to pixel.
        border: (top, left, bottom, right).
    """

    batch: int
    rows: int
    columns: int
    channels: int
    pitch: int
    border: tuple[int, int, int, int]

    @property
    def numbers(self) -> tuple[Any, ...]:
        """What it is made of."""
        return self.batch, self.rows, self.columns, self.channels, self.pitch, self.border


@dataclass(eq=False, slots=True, weakref_slot=True)
class Storage:
    """A piece of memory that holds one tensor, or several side by side.

    Args:
        phantom: one-dimensional, as long as the piece; its memory is never read.
        home: where it lives.
        is_zeroed: the bytes no tensor covers must be zero, as they are when the arena is made.
        frame: the zeros around images; storages of equal frames keep them.
        data: contents of a constant.
        port: number of the graph's input or output.

    Attributes:
        begin: where the phantom begins.
        traits: all that tells it from others, in numbers; made when it is first asked for.
    """

    phantom: Array
    home: Home = Home.ARENA
    is_zeroed: bool = False
    frame: Frame | None = None
    data: Array | None = None
    port: int = -1
    begin: int = field(init=False)
    _traits: tuple[Any, ...] | None = field(default=None, init=False)

    @property
    def traits(self) -> tuple[Any, ...]:
        if self._traits is None:
            phantom = self.phantom
            numbers = phantom.size, number_of(phantom.dtype), int(self.home), self.is_zeroed
            self._traits = *numbers, None if self.frame is None else self.frame.numbers, self.port
        return self._traits

    def __post_init__(self) -> None:
        self.begin = _begin(self.phantom)

    @property
    def bytes(self) -> int:
        """Size of the piece."""
        return self.phantom.nbytes


@dataclass(frozen=True, eq=False, slots=True)
class View:
    """A tensor in a storage.

    Args:
        phantom: a numpy view of the storage's phantom with the tensor's logical shape.
        border: zeros that lie around its last two dimensions: (top, left, bottom, right).
    """

    storage: Storage
    phantom: Array
    border: tuple[int, int, int, int] = field(default=(0, 0, 0, 0))

    @property
    def shape(self) -> tuple[int, ...]:
        """Logical shape."""
        return self.phantom.shape

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.phantom.dtype

    @property
    def traits(self) -> tuple[Any, ...]:
        """All that tells it from other views of its storage, in numbers."""
        phantom = self.phantom
        return phantom.shape, phantom.strides, number_of(phantom.dtype), self.offset, self.border

    @property
    def strides(self) -> tuple[int, ...]:
        """Distances along the dimensions in elements; 0 where a dimension has one element or none."""
        size = self.phantom.itemsize
        return tuple(
            0 if n <= 1 else stride // size for n, stride in zip(self.shape, self.phantom.strides, strict=True)
        )

    @property
    def offset(self) -> int:
        """Bytes from the beginning of the storage to the first element."""
        return _begin(self.phantom) - self.storage.begin

    def derive(self, phantom: Array) -> View | None:
        """The view another numpy view of this one stands for; None if numpy had to copy."""
        if phantom.size and not _lies_within(phantom, self.storage):
            return None
        return View(self.storage, phantom, self._border_of(phantom))

    def _border_of(self, phantom: Array) -> tuple[int, int, int, int]:
        """The border survives where only channels or planes were chosen: the same rows and columns, where they were."""
        same = phantom.ndim == self.phantom.ndim and phantom.shape[-2:] == self.shape[-2:]
        if same and phantom.strides[-2:] == self.phantom.strides[-2:] and phantom.ndim in (4, 5):
            return self.border
        return (0, 0, 0, 0)

    @property
    def is_channels_last(self) -> bool:
        """Whether neighbouring channels are neighbours in memory."""
        strides = self.strides
        return len(strides) >= 3 and (strides[1] == 1 or (self.shape[1] == 1 and all(s >= 1 for s in strides[2:])))

    @property
    def is_image(self) -> bool:
        """Whether it is a signal, image or volume that lies channels-last, and not in logical order as well."""
        if len(self.shape) > 5 or not self.is_channels_last or self.is_row_major:
            return False
        lying = [axis for axis in self.order if axis > 1 and self.shape[axis] != 1]
        return lying == sorted(lying)  # not one whose rows are columns

    @property
    def order(self) -> tuple[int, ...]:
        """Its dimensions, those whose elements lie farthest apart first; those of one element before all others."""
        return tuple(sorted(range(len(self.shape)), key=lambda k: (self.shape[k] != 1, -self.strides[k])))

    @property
    def is_row_major(self) -> bool:
        """Whether the elements lie one after the other in logical order."""
        return bool(self.phantom.flags.c_contiguous)


def _begin(array: Array) -> int:
    """Where an array's first element lies."""
    return int(array.__array_interface__["data"][0])


def _lies_within(part: Array, whole: Storage) -> bool:
    """Whether every element lies in a piece of memory: both ends, by what strides and sizes say."""
    first = last = _begin(part)
    for size, stride in zip(part.shape, part.strides, strict=True):
        if stride < 0:
            first += (size - 1) * stride
        else:
            last += (size - 1) * stride
    return whole.begin <= first and last + part.itemsize <= whole.begin + whole.phantom.nbytes


def _phantom(count: int, dtype: DType) -> Array:
    """Memory of so many elements that nobody touches.

    Raises:
        CompileError: no memory could hold them.
    """
    try:
        return np.empty(count, dtype)
    except (MemoryError, OverflowError, ValueError):
        raise CompileError("a tensor is too large", found=f"{count * dtype.itemsize:,} bytes") from None


def alarm() -> View:
    """A word that kernels set when they cannot vouch for their result; nothing else is stored there."""
    storage = Storage(np.empty(ALIGNMENT // 4, np.float32), is_zeroed=True)
    return View(storage, storage.phantom)


def storage_with(traits: tuple[Any, ...]) -> Storage:
    """A new storage like the one these were told of; it is no constant."""
    size, dtype, home, is_zeroed, frame, port = traits
    return Storage(
        _phantom(size, dtype_of(dtype)), Home(home), is_zeroed, None if frame is None else Frame(*frame), port=port
    )


def row_major(shape: Sequence[int], dtype: DType, home: Home = Home.ARENA, port: int = -1) -> View:
    """A new tensor whose last dimension is contiguous."""
    storage = Storage(_phantom(math.prod(shape), dtype), home, port=port)
    return View(storage, storage.phantom.reshape(shape))


def like(x: View, dtype: DType) -> View:
    """A new tensor of the shape of another, its channels contiguous where those of the other are."""
    if not x.is_channels_last or x.is_row_major:
        return row_major(x.shape, dtype)
    n, channels, *sizes = x.shape
    storage = Storage(_phantom(math.prod(x.shape), dtype))
    return View(storage, np.moveaxis(storage.phantom.reshape(n, *sizes, channels), -1, 1))


def ordered(shape: Sequence[int], order: Sequence[int], dtype: DType) -> View:
    """A new tensor without gaps whose dimensions follow each other in memory in an order; see View.order."""
    storage = Storage(_phantom(math.prod(shape), dtype))
    return View(storage, storage.phantom.reshape([shape[k] for k in order]).transpose(np.argsort(order)))


def spaced_rows(shape: Sequence[int], dtype: DType = FLOAT32) -> View:
    """A new tensor whose last dimension is contiguous; its rows lie so far apart that they do not alias."""
    size = shape[-1]
    pitch = _pitch(size, dtype.itemsize)
    storage = Storage(_phantom(math.prod(shape[:-1]) * pitch, dtype))
    return View(storage, storage.phantom.reshape(*shape[:-1], pitch)[..., :size])


def _pitch(size: int, width: int) -> int:
    """Elements from one pixel or row to the next, of so many bytes each."""
    is_aliasing = size * width >= ALIASING_BYTES and size * width % (ALIASING_BYTES // 2) == 0
    return size + ALIGNMENT // width if is_aliasing else size


def is_aliasing(rows: View) -> bool:
    """Whether the rows of a tile, those of matrices, begin in one or two sets of a first-level cache."""
    return math.gcd(rows.phantom.strides[-2], PAGE_BYTES) >= PAGE_BYTES // 2


def constant(data: Array) -> View:
    """A tensor that is known now."""
    flat = np.ascontiguousarray(data).reshape(-1)
    storage = Storage(_phantom(flat.size, flat.dtype), Home.CONSTANT, data=flat)
    return View(storage, storage.phantom.reshape(data.shape))


def channels_last(
    shape: Sequence[int], border: tuple[int, int, int, int] = (0, 0, 0, 0), dtype: DType = FLOAT32
) -> View:
    """A new tensor (N, C, *S) whose channels are contiguous.

    Args:
        border: zeros around the last two dimensions: (top, left, bottom, right); for (N, C, W) only left and right.
    """
    n, channels, *sizes = shape
    *planes, height, width = sizes if len(sizes) > 1 else (1, *sizes)
    top, left, bottom, right = border
    pitch, images = _pitch(channels, dtype.itemsize), n * math.prod(planes)
    rows, columns = height + top + bottom, width + left + right
    phantom = _phantom(images * rows * columns * pitch, dtype)
    whole = phantom.reshape(n, *planes, rows, columns, pitch)
    inner = whole[..., top : top + height, left : left + width, :channels]
    image = inner if len(sizes) > 1 else inner[:, 0]
    frame = Frame(images, rows, columns, channels, pitch, border) if any(border) else None
    storage = Storage(phantom, is_zeroed=frame is not None, frame=frame)
    return View(storage, image.transpose(0, image.ndim - 1, *range(1, image.ndim - 1)), border)
