"""Sequences, lists of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.errors import ShapeError
from engine.layers.creation.container import Arrangement
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.onnx.operands.adapter import shape_of
from engine.layers.onnx.operands.constants import whole_number, whole_numbers
from engine.layers.operands.axes import checked_axis, replaced
from engine.layers.operands.precision import INT64
from engine.layers.shape.join import Cat, Stack
from engine.tensor import UNKNOWN, Array, TensorSpec


def as_list(value: Any) -> list[Any]:
    """Return the items of a sequence.

    Raises:
        ShapeError: for anything else.
    """
    if not isinstance(value, (list, tuple)):
        raise ShapeError("not a sequence", found=type(value).__name__)
    return list(value)


def place(position: Any, length: int, last: int) -> int | None:
    """Return a position counted from 0; None if it is known only at run time.

    Raises:
        ShapeError: it is out of range.
    """
    index = whole_number(position, "position")
    if index is None:
        return None
    if not -length <= index <= last:
        raise ShapeError("position is out of range", found=index, expected=f"{-length} to {last}")
    return index + length if index < 0 else index


@register("SequenceAt", positional=("sequence", "position"))
class SequenceAt(Arrangement):
    """Item at a position; negative positions count from the end.

    The item of a list in the core has an index that is a number, not a tensor.
    """

    def infer(self, sequence: Any, position: Any) -> Any:  # type: ignore[override]
        return self._item(sequence, position) if isinstance(sequence, (list, tuple)) else UNKNOWN

    def forward(self, sequence: Any, position: Any) -> Any:
        return self._item(sequence, position)

    def _item(self, sequence: Any, position: Any) -> Any:
        items = as_list(sequence)
        index = place(position, len(items), len(items) - 1)
        return UNKNOWN if index is None else items[index]


@register("SequenceInsert", positional=("sequence", "item", "position"))
class SequenceInsert(Arrangement):
    """Sequence with an item inserted before a position or at the end.

    The core has no list operator that leaves its operand unchanged.
    """

    def infer(self, sequence: Any, item: Any, position: Any = None) -> Any:  # type: ignore[override]
        return self.forward(sequence, item, position) if isinstance(sequence, (list, tuple)) else UNKNOWN

    def forward(self, sequence: Any, item: Any, position: Any = None) -> Any:
        items = as_list(sequence)
        index = len(items) if position is None else place(position, len(items), len(items))
        if index is None:
            return UNKNOWN
        return [*items[:index], item, *items[index:]]


@register("SequenceErase", positional=("sequence", "position"))
class SequenceErase(Arrangement):
    """Sequence without the item at a position, or the last one.

    The core has no list operator that leaves its operand unchanged.
    """

    def infer(self, sequence: Any, position: Any = None) -> Any:  # type: ignore[override]
        return self.forward(sequence, position) if isinstance(sequence, (list, tuple)) else UNKNOWN

    def forward(self, sequence: Any, position: Any = None) -> Any:
        items = as_list(sequence)
        index = place(-1 if position is None else position, len(items), len(items) - 1)
        return UNKNOWN if index is None else [*items[:index], *items[index + 1 :]]


@register("SequenceLength")
class SequenceLength(Layer):
    """Number of items of a sequence.

    The length of a list in the core is a number, not a tensor.
    """

    takes_unknown = True

    def infer(self, sequence: Any) -> Any:
        return TensorSpec((), INT64)

    def forward(self, sequence: Any) -> Array:
        return np.asarray(len(as_list(sequence)), INT64)


@register("ConcatFromSequence")
class ConcatFromSequence(Layer):
    """Items concatenated along an axis, or stacked along a new one.

    The core joins tensors whose number is known before the run.
    """

    takes_unknown = True

    axis: int
    new_axis: bool = False

    def infer(self, sequence: Any) -> Any:
        return self._join.infer(sequence) if isinstance(sequence, (list, tuple)) and sequence else UNKNOWN

    def forward(self, sequence: Any) -> Any:
        return self._join.forward(as_list(sequence))

    @property
    def _join(self) -> Layer:
        return Stack(dim=self.axis) if self.new_axis else Cat(dim=self.axis)


@register("SplitToSequence", positional=("input", "split"))
class SplitToSequence(Layer):
    """Sequence of pieces along an axis.

    The core has no split into a number of pieces that depends on values.

    Parameters:
        split: length of all pieces but the last (one number), or of each; slices of length 1 by default.
        keepdims: slices, and pieces of a single length 1, keep the axis.
    """

    axis: int = 0
    keepdims: bool = True

    def infer(self, input: TensorSpec, split: Any = None) -> Any:
        axis = checked_axis(self.axis, input.rank)
        length = input.shape[axis]
        if length is None or isinstance(split, TensorSpec) or split is UNKNOWN:
            return UNKNOWN
        lengths = self._lengths(length, split)
        if self._drops(split):
            return [TensorSpec(replaced(input.shape, axis), input.dtype)] * length
        return [TensorSpec(replaced(input.shape, axis, size), input.dtype) for size in lengths]

    def forward(self, input: Array, split: Any = None) -> list[Array]:
        axis = checked_axis(self.axis, input.ndim)
        if not input.ndim:
            raise ShapeError("a 0-dim tensor has no axis to split")
        lengths = self._lengths(input.shape[axis], split)
        if not lengths:
            return []
        pieces = np.split(input, np.cumsum(lengths)[:-1], axis)
        return [piece.squeeze(axis) for piece in pieces] if self._drops(split) else pieces

    def _drops(self, split: Any) -> bool:
        """Return whether the axis is dropped; also for a single length 1, which is how PyTorch exports unbind."""
        if split is None or self.keepdims:
            return not self.keepdims
        is_scalar = shape_of(split) == () and not isinstance(split, (tuple, list))
        return is_scalar and whole_numbers(split, "split") == (1,)

    def _lengths(self, length: int, split: Any) -> list[int]:
        if split is None:
            return [1] * length
        sizes = whole_numbers(split, "split") or ()
        if shape_of(split) == () and not isinstance(split, (tuple, list)):
            if len(sizes) != 1 or sizes[0] < 1:
                raise ShapeError("split must be positive", found=list(sizes))
            return [min(sizes[0], length - start) for start in range(0, length, sizes[0])]
        if sum(sizes) != length or any(size < 0 for size in sizes):
            raise ShapeError("split does not add up", found=list(sizes)[:8], expected=f"a sum of {length}")
        return list(sizes)
