"""Operators with several pieces of one tensor as their outputs.

The converter lists the pieces as separate outputs; an operator with one output without annotation returns all pieces
as a list instead, for a ``prim::ListUnpack``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.ir.dims import hint, is_symbolic, largest, specialise
from engine.ir.sizes import slice_bound
from engine.layers.definition.layer import NO_ANNOTATIONS, Annotations
from engine.layers.definition.registry import register
from engine.layers.operands.axes import checked_axis, replaced
from engine.layers.shape.shape import Rearrangement
from engine.limits import MAX_ITEMS, check_steps
from engine.tensor import UNKNOWN, Array, Dim, Shape, TensorSpec


class _Pieces(Rearrangement):
    """Base of layers that split an axis; a subclass defines the lengths of the pieces.

    An ONNX file may omit the axis, which is then the first; the converter writes None.
    """

    dim: int | None = 0
    annotations: Annotations = NO_ANNOTATIONS

    def infer(self, input: TensorSpec) -> Any:
        axis = checked_axis(self.dim or 0, max(input.rank, 1))
        lengths = self.lengths(_length(input.shape, axis))
        if lengths is None:
            return UNKNOWN
        return self.arranged([TensorSpec(replaced(input.shape, axis, n), input.dtype) for n in lengths])

    def forward(self, input: Array) -> Any:
        axis = checked_axis(self.dim or 0, max(input.ndim, 1))
        lengths = [n for n in self.lengths(_length(input.shape, axis)) or () if n is not None]
        lead = (slice(None),) * axis
        starts = self.starts(lengths, input.shape[axis])
        pieces = [input[(*lead, slice(start, start + n))] for start, n in zip(starts, lengths, strict=True)]
        return self.arranged(pieces)

    def starts(self, lengths: Sequence[int], length: int) -> Sequence[int]:
        """Return the start of each piece, the end of the one before."""
        return [0, *accumulate(lengths)][:-1]

    def lengths(self, length: Dim) -> Sequence[Dim] | None:
        """Return the pieces' lengths, dynamic if the axis is; None if not even their number is known."""
        raise NotImplementedError

    def _open(self) -> Sequence[Dim] | None:
        return None if self.gives_list else (None,) * len(self.annotations.outputs)

    @property
    def gives_list(self) -> bool:
        """Return whether all pieces are one list."""
        return self.annotations.outputs in ((), (None,))

    def arranged(self, pieces: list[Any]) -> Any:
        """Return the pieces as a list, a tuple, or a single one, as the outputs have it."""
        if self.gives_list:
            return pieces
        if len(pieces) != len(self.annotations.outputs):
            raise ShapeError("the number of pieces differs", found=len(pieces), expected=len(self.annotations.outputs))
        return pieces[0] if len(pieces) == 1 else tuple(pieces)


def _length(shape: Shape, axis: int) -> Dim:
    if not shape:
        raise ShapeError("a 0-dim tensor has no axis to split")
    return shape[axis]


@register("torch.split", positional=("input", "split_size_or_sections", "dim"), renamed={"tensor": "input"})
class Split(_Pieces):
    """Pieces of one size along dim, the last possibly shorter; or of the given sizes; or equal ones (ONNX).

    Raises:
        ShapeError: the sizes do not add up to the axis.
    """

    split_size_or_sections: int | tuple[Dim, ...] | None

    def lengths(self, length: Dim) -> Sequence[Dim] | None:
        sizes = self.split_size_or_sections
        if isinstance(sizes, tuple) and sizes:
            return _checked_sections(sizes, length)
        if sizes is None or isinstance(sizes, tuple):
            return self._equal_pieces(length)
        if sizes < 0 or (sizes == 0 and length):
            raise ParameterError("split size must be positive", found=sizes)
        if length is None:
            pieces = self._open()
            return None if pieces is None else (sizes,) * (len(pieces) - 1) + (None,)
        return _even_pieces(length, sizes)

    def _equal_pieces(self, length: Dim) -> Sequence[Dim] | None:
        """Return as many lengths as there are outputs; if they cannot be equal the last is shorter."""
        count = len(self.annotations.outputs)
        if self.gives_list and not (self.annotations.outputs and length is None):
            raise ParameterError("split without sizes needs an output for every piece", found="one output, a list")
        if length is None:
            return self._open()
        size = -(-length // count)
        if size * (count - 1) > length:
            raise ShapeError("an axis cannot be split into this many equal pieces", found=f"{count} of {length}")
        return [size] * (count - 1) + [length - size * (count - 1)]


def _even_pieces(length: int, size: int) -> list[int]:
    count = max(-(-length // size), 1) if size else 1
    if is_symbolic(count):  # for the current size there are enough pieces, and none is empty
        likely = hint(count)
        count = likely if (likely - 1) * size < length <= likely * size else specialise(count)
    check_steps(count, "pieces", MAX_ITEMS)
    return [size] * (count - 1) + [length - size * (count - 1)]


def _checked_sections(sizes: Shape, length: Dim) -> Shape:
    known = [size for size in sizes if size is not None]
    if min(known, default=0) < 0:
        raise ParameterError("sections must not be negative", found=list(sizes))
    if length is not None and len(known) == len(sizes) and sum(known) != length:
        raise ShapeError("sections do not add up", found=f"{list(sizes)}", expected=f"a sum of {length}")
    return sizes


@register("torch.chunk", positional=("input", "chunks", "dim"))
class Chunk(_Pieces):
    """At most ``chunks`` pieces along dim, all of ceil(length / chunks), the last possibly shorter."""

    chunks: int

    def lengths(self, length: Dim) -> Sequence[Dim] | None:
        if self.chunks < 1:
            raise ParameterError("chunks must be positive", found=self.chunks)
        if length is None:
            return self._open()
        check_steps(0 if length else self.chunks, "pieces", MAX_ITEMS)
        return _even_pieces(length, -(-length // self.chunks)) if length else [0] * self.chunks


@register("torch.tensor_split", positional=("input", "sections", "indices", "dim"))
class TensorSplit(_Pieces):
    """Exactly ``sections`` pieces along dim, the first ones longer by one; or split before every given index."""

    sections: int | None = None
    indices: tuple[int, ...] | None = None
    dim: int = 0

    def lengths(self, length: Dim) -> Sequence[Dim] | None:
        if self.indices is not None:
            if length is None:
                return (None,) * (len(self.indices) + 1)
            return [largest(end - start, 0) for start, end in pairwise([0, *_cuts(self.indices, length), length])]
        if self.sections is None or self.sections < 1:
            raise ParameterError("sections must be positive", found=self.sections)
        check_steps(self.sections, "pieces", MAX_ITEMS)
        if length is None:
            return (None,) * self.sections
        return [(length + self.sections - 1 - piece) // self.sections for piece in range(self.sections)]

    def starts(self, lengths: Sequence[int], length: int) -> Sequence[int]:
        return super().starts(lengths, length) if self.indices is None else [0, *_cuts(self.indices, length)]


def _cuts(indices: Sequence[int], length: int) -> list[int]:
    """Return the split positions, clipped to the axis; they may decrease."""
    return [slice_bound(index, length, 0) for index in indices]


@register("aten::dsplit", presets={"axis": 2})
class AxisSplit(Rearrangement):
    """Like tensor_split along a fixed axis, which the sections must divide; for vectors along their only axis."""

    indices_or_sections: int | tuple[int, ...]
    axis: int
    annotations: Annotations = NO_ANNOTATIONS

    def infer(self, input: TensorSpec) -> Any:
        return self.split(input.shape).infer(input)

    def forward(self, input: Array) -> Any:
        return self.split(input.shape).forward(input)

    def split(self, shape: Shape) -> TensorSplit:
        """Return the same split with its axis and sections for this shape."""
        axis, cuts = min(self.axis, len(shape) - 1), self.indices_or_sections
        if isinstance(cuts, tuple):
            return TensorSplit(indices=cuts, dim=axis, annotations=self.annotations)
        length = _length(shape, axis)
        if cuts < 1 or (length is not None and length % cuts):
            raise ShapeError("the axis cannot be split evenly", found=f"{length} by {cuts}")
        return TensorSplit(sections=cuts, dim=axis, annotations=self.annotations)


@register("torch.unbind")
class Unbind(_Pieces):
    """The slices along dim, without that axis."""

    dim: int = 0

    def infer(self, input: TensorSpec) -> Any:
        axis = checked_axis(self.dim, input.rank)
        count = _length(input.shape, axis)
        if count is None and self.gives_list:
            return UNKNOWN
        check_steps(count or 0, "slices", MAX_ITEMS)
        slice = TensorSpec(replaced(input.shape, axis), input.dtype)
        return self.arranged([slice] * (len(self.annotations.outputs) if count is None else count))

    def forward(self, input: Array) -> Any:
        axis = checked_axis(self.dim, input.ndim)
        return self.arranged(list(np.moveaxis(input, axis, 0)))
