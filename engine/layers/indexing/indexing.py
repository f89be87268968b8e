"""Indexing with tensors: ``x[i, :, j]``, read and written.

An index is a list with one slot for each leading axis: a tensor of positions, a mask that covers as many axes as it
has dimensions, or None for the whole axis. Constant index vectors are text in the file,
``[[2,1],None,[True,False]]``. Adjacent index tensors leave their axes in place; otherwise the indexed axes come first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.definition.layer import NO_ANNOTATIONS, Annotations, Layer
from engine.layers.definition.registry import register
from engine.layers.indexing.combining import WAYS
from engine.layers.operands.axes import may_match
from engine.layers.operands.fitting import check_added_rank, check_category, check_shape
from engine.layers.operands.precision import working_dtype
from engine.layers.shape.shape import Rearrangement
from engine.promotion import broadcast_shapes, cast
from engine.tensor import UNKNOWN, Array, Dim, Number, Shape, TensorSpec, format_shape, spec_of

Slots: TypeAlias = Sequence[Any]


@register("Tensor.index")
class Index(Rearrangement):
    """input[expr].

    Raises:
        ParameterError: the text is not an index, or, by the annotated result, holds only the first row of a constant
            index of several dimensions, as the converter writes it.
        ShapeError: an index does not fit the input, or is out of range.
    """

    annotations: Annotations = NO_ANNOTATIONS

    def infer(self, input: TensorSpec, expr: str | Slots) -> Any:
        slots = _slots(expr)
        if any(slot is UNKNOWN for slot in slots):
            return UNKNOWN
        shape = _indexed_shape(input.shape, slots)
        self._check_whole(expr, shape)
        return TensorSpec(shape, input.dtype)

    def forward(self, input: Array, expr: str | Slots) -> Array:
        slots = _slots(expr)
        with _placed(input.shape):
            return np.asarray(input[_index(slots)])

    def _check_whole(self, expr: str | Slots, shape: Shape) -> None:
        annotated = self.annotations.outputs[0] if self.annotations.outputs else None
        if isinstance(expr, str) and annotated is not None and annotated.rank != len(shape):
            raise ParameterError(
                "expr has only the first row of a multidimensional constant index",
                found=f"a result of shape {format_shape(shape)}",
                expected=format_shape(annotated.shape),
            )


@register("Tensor.index_put", positional=("input", "indices", "values", "accumulate"))
class IndexPut(Layer):
    """A copy of input with values, broadcast and converted, at the index.

    Parameters:
        accumulate: add the values instead.
        reduce: combine them with the elements instead (ONNX): sum, prod, amax or amin, with half precision in float32.
    """

    accumulate: bool = False
    reduce: str | None = None

    def __post_init__(self) -> None:
        if self.reduce not in (None, "sum", "prod", "amax", "amin"):
            raise ParameterError("unknown reduce", found=self.reduce, expected="sum, prod, amax or amin")

    def infer(self, input: TensorSpec, indices: str | Slots, values: TensorSpec | Number) -> TensorSpec:
        slots = _slots(indices)
        if all(slot is not UNKNOWN for slot in slots):
            target = _indexed_shape(input.shape, slots)
            _check_values(values.shape if isinstance(values, TensorSpec) else (), target)
        if isinstance(values, TensorSpec):
            check_category(values.dtype, input.dtype)
        return input

    def forward(self, input: Array, indices: str | Slots, values: Array | Number) -> Array:
        slots = _slots(indices)
        if isinstance(values, np.ndarray):
            check_category(values.dtype, input.dtype)
        dtype = input.dtype if self.reduce is None else working_dtype(input.dtype)
        index, source, way = _index(slots), cast(values, dtype), "add" if self.accumulate else self.reduce
        result = input.astype(dtype)
        with _placed(input.shape), np.errstate(all="ignore"):
            target = result[index]
            _check_values(source.shape, target.shape)
            if way is None:
                result[index] = source
            else:
                check_added_rank(result.ndim, target.ndim)
                WAYS[way].at(result, index, source)
        return cast(result, input.dtype)


def _check_values(values: Shape, target: Shape) -> None:
    if not may_match(broadcast_shapes(values, target), target):
        raise ShapeError("values do not fit the index", found=format_shape(values), expected=format_shape(target))


@contextmanager
def _placed(shape: Shape) -> Iterator[None]:
    """Convert numpy's error about an index to ours."""
    try:
        yield
    except IndexError as error:
        raise ShapeError(f"index does not fit shape {format_shape(shape)}: {error}") from None


def _slots(expr: str | Slots) -> Slots:
    return constant_slots(expr) if isinstance(expr, str) else expr


@lru_cache(maxsize=256)
def constant_slots(text: str) -> Slots:
    """Return a constant index from its text."""
    try:
        items = json.loads(text.replace("None", "null").replace("True", "true").replace("False", "false"))
        return tuple(None if item is None else np.array(item, None if item else np.int64) for item in items)
    except (ValueError, TypeError, RecursionError):
        raise ParameterError(
            "not an index", found=text[:80], expected="a list such as [[2,1],None,[True,False]]"
        ) from None


def _specs(slots: Slots) -> Slots:
    """Return the description of an index before its masks are counted."""
    return [None if slot is None else spec_of(np.asarray(slot)) for slot in slots]


def _index(slots: Slots) -> tuple[Any, ...]:
    return (*(slice(None) if slot is None else _positions(slot) for slot in slots), ...)


def _positions(slot: Any) -> Array:
    """Return an index in numpy's form; like PyTorch, uint8 is a mask."""
    # numpy writes in the memory order of an index; for repeated positions the last one in row-major order must win.
    array = np.asarray(slot, order="C")
    if array.dtype == np.uint8:
        return np.asarray(array != 0)
    if array.dtype.kind not in "biu":
        raise ShapeError("only integers, bools and bytes can be indices", found=array.dtype)
    return array


def _indexed_shape(input: Shape, slots: Slots) -> Shape:
    """Return the shape of input[slots]; a mask's number of hits is unknown unless it is a constant."""
    entries: list[tuple[int, Shape | None]] = []
    covered = 0
    for slot in slots:
        found = [(1, None)] if slot is None else _as_positions(slot, input, covered)
        entries.extend(found)
        covered += sum(axes for axes, _ in found)
    if covered > len(input):
        raise ShapeError("too many indices", found=covered, expected=f"at most {len(input)}")
    taken = [place for place, (_, shape) in enumerate(entries) if shape is not None]
    if not taken:
        return input
    result = broadcast_shapes(*(shape for _, shape in entries if shape is not None))
    kept = [shape is None for axes, shape in entries if axes] + [True] * (len(input) - covered)
    rest = tuple(dim for dim, is_kept in zip(input, kept, strict=True) if is_kept)
    lead = taken[0] if taken[-1] - taken[0] + 1 == len(taken) else 0
    return rest[:lead] + result + rest[lead:]


def _as_positions(slot: Any, input: Shape, axis: int) -> list[tuple[int, Shape | None]]:
    """Return the position tensors of a slot, as the number of axes each indexes and its shape.

    They are the slot itself, or one for each dimension of a mask; a mask of no dimensions adds an axis.
    """
    slot = slot if isinstance(slot, TensorSpec) else np.asarray(slot)
    if slot.dtype not in (np.bool_, np.uint8):
        return [(1, slot.shape)]
    covered = input[axis : axis + len(slot.shape)]
    check_shape(slot.shape, covered, "mask does not fit")
    hits: Dim = None if isinstance(slot, TensorSpec) else int(np.count_nonzero(slot))
    return [(1, (hits,))] * len(slot.shape) or [(0, (hits,))]
