"""Storages of tensors while a compiled program runs, and views of them.

Logical shapes stay PyTorch's. The memory layout of a tensor is decided once, when its storage is made: channels-last
with an optional border of zeros, or row-major. A view is described by a meta tensor (`engine.ir.strided`): shape,
strides and offset, without elements. What strides can express (a slice, a permutation, a split dimension) is a view and
costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from engine.compiler.addresses import MemorySpace
from engine.errors import CompileError
from engine.ir.dims import hint, is_same, is_symbolic
from engine.ir.strided import Strided, empty
from engine.tensor import Array, DType

# Neighbouring pixels or rows at multiples of this distance map to few sets of the L1 cache, which every processor
# selects by the address bits within a page.
ALIASING_BYTES = 1024
PAGE_BYTES = 4096
ALIGNMENT = 64
FLOAT32 = np.dtype(np.float32)
# Address space of a process on a 64-bit processor.
ADDRESSABLE_BYTES = 2**47


@dataclass(frozen=True, slots=True)
class Frame:
    """Zeros around channels-last images, or bytes of another value, which convolutions read.

    Args:
        rows, columns: of an image with its border.
        pitch: floats from pixel to pixel, or words of four bytes.
        border: (top, left, bottom, right).
        fill: value of each byte of the border.
        zeros: channels of zeros behind those of every pixel.
    """

    batch: int
    rows: int
    columns: int
    channels: int
    pitch: int
    border: tuple[int, int, int, int]
    fill: int = 0
    zeros: int = 0

    @property
    def numbers(self) -> tuple[Any, ...]:
        """Return all fields, to compare frames whose sizes are symbolic."""
        return self.batch, self.rows, self.columns, self.channels, self.pitch, self.border, self.fill, self.zeros


@dataclass(eq=False, slots=True, weakref_slot=True)
class Storage:
    """Block of memory that holds one tensor, or several side by side.

    Args:
        meta: one-dimensional meta tensor of the whole block.
        space: the memory space.
        is_zeroed: the bytes no tensor covers must be zero, as they are when the arena is made.
        frame: the zeros around images; storages of equal frames keep them.
        data: contents of a constant.
        port: number of the graph's input or output.
    """

    meta: Strided
    space: MemorySpace = MemorySpace.ARENA
    is_zeroed: bool = False
    frame: Frame | None = None
    data: Array | None = None
    port: int = -1

    @property
    def bytes(self) -> int:
        """Return the size of the block."""
        return self.meta.nbytes

    def is_apart(self, shared_bytes: float) -> bool:
        """Return whether only storages of equal frames share its memory; larger borders are cleared in every run."""
        return self.is_zeroed and (self.frame is None or self.frame.zeros > 0 or hint(self.bytes) < shared_bytes)

    def part(self, shape: Sequence[int], strides: Sequence[int], offset: int, dtype: DType) -> Strided:
        """Return the meta tensor of a view; strides and offset are in bytes."""
        return Strided(tuple(shape), tuple(strides), offset, dtype, self.meta.memory)


@dataclass(frozen=True, eq=False, slots=True)
class View:
    """Tensor in a storage.

    Args:
        meta: a view of the storage's meta tensor with the tensor's logical shape.
        border: what lies around its last two dimensions, as the storage's frame says: (top, left, bottom, right).
    """

    storage: Storage
    meta: Strided
    border: tuple[int, int, int, int] = field(default=(0, 0, 0, 0))

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the logical shape."""
        return self.meta.shape

    @property
    def dtype(self) -> DType:
        """Return the element type."""
        return self.meta.dtype

    @property
    def strides(self) -> tuple[int, ...]:
        """Return the distances along the dimensions in elements; 0 where a dimension has at most one element."""
        size = self.meta.itemsize
        return tuple(0 if n <= 1 else stride // size for n, stride in zip(self.shape, self.meta.strides, strict=True))

    @property
    def offset(self) -> int:
        """Return the bytes from the beginning of the storage to the first element."""
        return self.meta.offset

    def has_border(self, border: tuple[int, int, int, int], fill: int = 0) -> bool:
        """Return whether at least this border of such bytes lies around it."""
        frame = self.storage.frame
        is_wide = all(mine >= wanted for mine, wanted in zip(self.border, border, strict=True))
        return is_wide and (not any(border) or frame is None or frame.fill == fill)

    def derive(self, meta: Strided) -> View | None:
        """Return the view that a view of this one's meta tensor stands for; None if it is a copy.

        A view without elements gets a storage of its own: its offset has no meaning, and as a part of this storage it
        would be memory that others write.
        """
        if meta.size == 0:
            return row_major(meta.shape, meta.dtype)
        if not _lies_within(meta, self.storage):
            return None
        return View(self.storage, meta, self._border_of(meta))

    def _border_of(self, meta: Strided) -> tuple[int, int, int, int]:
        """Return the border, which survives where only channels or planes were selected: same rows and columns."""
        same = meta.ndim == self.meta.ndim and is_same(meta.shape[-2:], self.shape[-2:])
        if same and is_same(meta.strides[-2:], self.meta.strides[-2:]) and meta.ndim in (4, 5):
            return self.border
        return (0, 0, 0, 0)

    @property
    def is_channels_last(self) -> bool:
        """Return whether neighbouring channels are neighbours in memory."""
        strides = self.strides
        return len(strides) >= 3 and (strides[1] == 1 or (self.shape[1] == 1 and all(s >= 1 for s in strides[2:])))

    @property
    def is_image(self) -> bool:
        """Return whether it is a signal, image or volume that lies channels-last, and not row-major as well."""
        if len(self.shape) > 5 or not self.is_channels_last or self.is_row_major:
            return False
        lying = [axis for axis in self.order if axis > 1 and self.shape[axis] != 1]
        return lying == sorted(lying)  # rows before columns

    @property
    def order(self) -> tuple[int, ...]:
        """Return its dimensions, largest stride first; those of one element come before all others."""
        return tuple(sorted(range(len(self.shape)), key=lambda k: (self.shape[k] != 1, -hint(self.strides[k]))))

    @property
    def is_row_major(self) -> bool:
        """Return whether the elements are contiguous in logical order."""
        return self.meta.is_contiguous


def _lies_within(part: Strided, whole: Storage) -> bool:
    """Return whether every element lies in a storage, judged by strides and sizes."""
    if part.memory is not whole.meta.memory:
        return False
    first, end = part.bounds
    return first >= 0 and end <= part.memory.nbytes


def _meta_vector(count: int, dtype: DType) -> Strided:
    """Return a vector of so many elements with a memory of its own.

    Raises:
        CompileError: no memory could hold them.
    """
    if hint(count) * dtype.itemsize > ADDRESSABLE_BYTES:
        raise CompileError("a tensor is too large", found=f"{count * dtype.itemsize:,} bytes")
    return empty((count,), dtype)


def new_fault_flag() -> View:
    """Return a word that kernels set when their result is void; nothing else is stored there."""
    storage = Storage(_meta_vector(ALIGNMENT // 4, FLOAT32), is_zeroed=True)
    return View(storage, storage.meta)


def row_major(shape: Sequence[int], dtype: DType, space: MemorySpace = MemorySpace.ARENA, port: int = -1) -> View:
    """Return a new tensor whose last dimension is contiguous."""
    storage = Storage(_meta_vector(math.prod(shape), dtype), space, port=port)
    return View(storage, storage.meta.reshape(shape))


def like(x: View, dtype: DType) -> View:
    """Return a new tensor with another's shape, and contiguous channels where the other has them."""
    if not x.is_channels_last or x.is_row_major:
        return row_major(x.shape, dtype)
    n, channels, *sizes = x.shape
    storage = Storage(_meta_vector(math.prod(x.shape), dtype))
    return View(storage, storage.meta.reshape(n, *sizes, channels).moveaxis(-1, 1))


def ordered(shape: Sequence[int], order: Sequence[int], dtype: DType) -> View:
    """Return a new tensor without gaps whose dimensions are in an order in memory; see View.order."""
    storage = Storage(_meta_vector(math.prod(shape), dtype))
    return View(storage, storage.meta.reshape([shape[k] for k in order]).transpose(inverse(order)))


def inverse(order: Sequence[int]) -> list[int]:
    """Return the permutation that undoes another."""
    return sorted(range(len(order)), key=order.__getitem__)


def spaced_rows(shape: Sequence[int], dtype: DType = FLOAT32) -> View:
    """Return a new tensor whose last dimension is contiguous; its rows lie so far apart that they do not alias."""
    size = shape[-1]
    pitch = _pitch(size, dtype.itemsize)
    storage = Storage(_meta_vector(math.prod(shape[:-1]) * pitch, dtype))
    return View(storage, storage.meta.reshape(*shape[:-1], pitch)[..., :size])


def paired(view: View, axis: int) -> View | None:
    """Return new memory for a tensor of floats as bfloat16 in its layout, whose pairs along an axis are words.

    None where pairs would not be words, or for a small part of other memory.
    """
    storage, meta, word = view.storage, view.meta, FLOAT32.itemsize
    others = [stride for k, stride in enumerate(meta.strides) if k != axis % meta.ndim]
    if is_symbolic(meta.shape) or meta.strides[axis] != word or storage.space is not MemorySpace.ARENA:
        return None
    frame, is_small = storage.frame, storage.bytes > 2 * meta.nbytes
    if is_small or any(each % (2 * word) for each in (*others, view.offset, word * meta.shape[axis], storage.bytes)):
        return None
    if frame is not None:
        frame = replace(frame, channels=frame.channels // 2, pitch=frame.pitch // 2)
    own = Storage(_meta_vector(storage.bytes // (2 * word), FLOAT32), is_zeroed=storage.is_zeroed, frame=frame)
    shape, strides = list(meta.shape), [stride // 2 for stride in meta.strides]
    shape[axis], strides[axis] = shape[axis] // 2, word
    return View(own, own.part(shape, strides, view.offset // 2, FLOAT32), view.border)


def _pitch(size: int, width: int) -> int:
    """Return the elements from one pixel or row to the next, which have so many elements of so many bytes."""
    nbytes = hint(size) * width
    is_aliasing = nbytes >= ALIASING_BYTES and nbytes % (ALIASING_BYTES // 2) == 0
    return size + ALIGNMENT // width if is_aliasing else size


def is_aliasing(rows: View) -> bool:
    """Return whether the rows of a matrix tile begin in one or two sets of a first-level cache."""
    return math.gcd(hint(rows.meta.strides[-2]), PAGE_BYTES) >= PAGE_BYTES // 2


def constant(data: Array) -> View:
    """Return a tensor whose value is known now."""
    flat = np.ascontiguousarray(data).reshape(-1)
    storage = Storage(_meta_vector(flat.size, flat.dtype), MemorySpace.CONSTANT, data=flat)
    return View(storage, storage.meta.reshape(data.shape))


def channels_last(
    shape: Sequence[int],
    border: tuple[int, int, int, int] = (0, 0, 0, 0),
    dtype: DType = FLOAT32,
    fill: int = 0,
    *,
    zeros: int = 0,
) -> View:
    """Return a new tensor (N, C, *S) whose channels are contiguous.

    Args:
        border: around the last two dimensions: (top, left, bottom, right); for (N, C, W) only left and right.
        fill: value of each byte of the border.
        zeros: number of the last channels that are zero and never written.
    """
    n, channels, *sizes = shape
    *planes, height, width = sizes if len(sizes) > 1 else (1, *sizes)
    top, left, bottom, right = border
    # Pixels of bytes are whole words.
    per_word, images = (4, n * math.prod(planes)) if dtype.itemsize == 1 else (1, n * math.prod(planes))
    pitch = -(-_pitch(channels, dtype.itemsize) // per_word) * per_word
    rows, columns = height + top + bottom, width + left + right
    meta = _meta_vector(images * rows * columns * pitch, dtype)
    whole = meta.reshape(n, *planes, rows, columns, pitch)
    inner = whole[..., top : top + height, left : left + width, :channels]
    image = inner if len(sizes) > 1 else inner[:, 0]
    frame = None
    if any(border) or zeros:
        frame = Frame(images, rows, columns, channels, pitch // per_word, border, fill, zeros)
    storage = Storage(meta, is_zeroed=frame is not None and not fill, frame=frame)
    return View(storage, image.transpose(0, image.ndim - 1, *range(1, image.ndim - 1)), border)
