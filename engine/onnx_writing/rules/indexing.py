"""Elements chosen by position or by a mask, read and written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.layers.elementwise.arithmetic import Div
from engine.layers.indexing import indexing, masking, scatter, selection, slicing
from engine.layers.linear import embedding
from engine.layers.operands.axes import checked_axes, checked_axis
from engine.layers.shape import diagonal
from engine.onnx_writing.registry import writes
from engine.onnx_writing.value import Operand, Value, holds_value
from engine.onnx_writing.writer import BOOL, END, INT64, Writer

# Slices


@writes(slicing.Slice, dynamic=("starts", "ends", "steps", "selects"))
def window(to: Writer, layer: Any, input: Value) -> Value:
    """Write the part of a tensor that a slice reads or writes."""
    axes = checked_axes(layer.dims, input.rank)
    selects = layer.selects or (slicing.NOT_SELECTED,) * len(axes)
    items = [k for k in range(len(axes)) if not _selects(selects[k])]
    steps = [layer.steps[k] if layer.steps else 1 for k in items]
    starts = [layer.starts[k] if layer.starts else _first(step) for k, step in zip(items, steps, strict=True)]
    ends = [layer.ends[k] if layer.ends else END for k in items]
    x = input
    if items and not _is_whole(starts, ends, steps):
        x = to.op("Slice", x, *(to.vector(each) for each in (starts, ends, [axes[k] for k in items], steps)))
    chosen = [(axes[k], selects[k]) for k in range(len(axes)) if k not in items]
    for axis, place in sorted(chosen, key=lambda each: -each[0]):
        x = to.take(x, to.reshape(to.tensor(place, INT64), ()), axis)
    return x


def _selects(select: Any) -> bool:
    return isinstance(select, Value) or select != slicing.NOT_SELECTED


def _first(step: Any) -> int:
    return END if not isinstance(step, Value) and step < 0 else 0


def _is_whole(starts: Sequence[Any], ends: Sequence[Any], steps: Sequence[Any]) -> bool:
    known = not holds_value([*starts, *ends, *steps])
    return known and set(starts) == {0} and min(ends) >= 2**31 - 1 and set(steps) == {1}


@writes(slicing.Select, dynamic=("index",))
def select(to: Writer, layer: slicing.Select, input: Value) -> Value:
    index: Any = layer.index
    axis = checked_axis(layer.dim, input.rank)
    if isinstance(index, Value):
        return to.take(input, index, axis)
    if len(index) == 1 and not layer.keeps_axis:
        return to.take(input, to.reshape(to.tensor(index[0], INT64), ()), axis)
    return to.take(input, to.vector(list(index)), axis)


@writes(slicing.Narrow, dynamic=("start", "length"))
def narrow(to: Writer, layer: slicing.Narrow, input: Value) -> Value:
    (start,), (length,) = layer.start, layer.length
    if holds_value([start, length]):
        first = to.vector([start])
        return to.slice(input, layer.dim, first, to.op("Add", first, to.vector([length])))
    end = (start or 0) + (length or 0)
    return to.slice(input, layer.dim, start, END if start is not None and start < 0 and end == 0 else end)


@writes(slicing.Windows)
def windows(to: Writer, layer: slicing.Windows, input: Value) -> Value:
    axis = checked_axis(layer.dim, input.rank)
    last = to.tensor(to.size(input, axis)) - (layer.size - 1)
    starts = to.op("Range", 0, last, layer.step, shape=(None,))
    gathered = to.take(input, to.op("Unsqueeze", starts, [1]) + to.counting(layer.size), axis)
    order = [place for place in range(input.rank + 1) if place != axis + 1]
    return to.op("Transpose", gathered, perm=[*order, axis + 1])


# Writing: as positions in the flattened tensor, which are read like the elements


def positions(to: Writer, input: Value) -> Value:
    """Return a tensor of the input's shape with the place of every element in the flattened input."""
    return to.op("Reshape", to.counting(to.op("Size", input)), to.sizes(input), shape=input.shape)


def written(to: Writer, input: Value, places: Value, source: Operand, reduction: str | None = None) -> Value:
    """Write a source, broadcast to the places, at positions of the flattened input."""
    spread = to.op("Expand", to.tensor(source, input.dtype), to.op("Shape", places))
    flat = [to.op("Reshape", each, [-1]) for each in (input, places, spread)]
    made = to.op("ScatterElements", *flat, axis=0, reduction=reduction)
    return to.op("Reshape", made, to.sizes(input), shape=input.sizes)


@writes(slicing.SliceCopy, slicing.SliceScatter, dynamic=("starts", "ends", "steps", "selects"))
def slice_copy(to: Writer, layer: Any, input: Value, src: Value) -> Value:
    return written(to, input, window(to, layer, positions(to, input)), src)


@writes(diagonal.Diagonal)
def diagonal_(to: Writer, layer: Any, input: Value) -> Value:
    """Write a diagonal of each plane, as the last axis."""
    first, second = checked_axes((layer.dim1, layer.dim2), input.rank)
    rows, columns = to.known((input.shape[first], input.shape[second]), "the size of a plane")
    places = np.arange(columns)[None] - np.arange(rows)[:, None] == layer.offset
    order = [axis for axis in range(input.rank) if axis not in (first, second)]
    moved = to.op("Transpose", input, perm=[*order, first, second])
    lines = to.op("Reshape", moved, [*([0] * len(order)), rows * columns])
    return to.take(lines, np.flatnonzero(places), len(order))


@writes(diagonal.DiagonalScatter)
def diagonal_scatter(to: Writer, layer: diagonal.DiagonalScatter, input: Value, src: Value) -> Value:
    return written(to, input, diagonal_(to, layer, positions(to, input)), src)


@writes(diagonal.DiagonalEmbed)
def diagonal_embed(to: Writer, layer: diagonal.DiagonalEmbed, input: Value) -> Value:
    shape = to.known(to.inferred(layer, input).shape, "the size of a diagonal")
    zeros = to.filled(to.constant(list(shape), INT64), 0, input.dtype)
    return written(to, zeros, diagonal_(to, layer, positions(to, zeros)), input)


@writes(diagonal.FillDiagonal)
def fill_diagonal(to: Writer, layer: diagonal.FillDiagonal, input: Value, fill_value: Operand) -> Value:
    marks = np.zeros(to.known(input.shape, "the size of a diagonal"), np.bool_)
    np.fill_diagonal(marks, True, layer.wrap)
    return to.where(to.constant(marks), to.tensor(fill_value, input.dtype), input)


# Positions


def _vector_of(to: Writer, x: Value) -> Value:
    """Return a tensor without dimensions as a vector of one element, others unchanged."""
    return x if x.rank else to.reshape(x, (1,))


@writes(selection.Gather)
def gather(to: Writer, layer: selection.Gather, input: Value, index: Value) -> Value:
    places = _vector_of(to, to.cast(index, INT64))
    made = to.op("GatherElements", _vector_of(to, input), places, axis=checked_axis(layer.dim, input.rank))
    return made if index.rank else to.reshape(made, ())


@writes(selection.IndexSelect)
def index_select(to: Writer, layer: selection.IndexSelect, input: Value, index: Value) -> Value:
    axis = checked_axis(layer.dim, input.rank)
    if layer.counts_back:
        return to.take(input, index, axis)
    made = to.take(_vector_of(to, input), _vector_of(to, index), axis)
    return made if input.rank else to.reshape(made, ())


@writes(selection.Take)
def take(to: Writer, layer: selection.Take, input: Value, index: Value) -> Value:
    return to.take(to.reshape(input, (-1,)), index, 0)


@writes(selection.TakeAlongDim)
def take_along_dim(to: Writer, layer: selection.TakeAlongDim, input: Value, indices: Value) -> Value:
    places = to.cast(indices, INT64)
    if layer.dim is None:
        return to.op("GatherElements", to.reshape(input, (-1,)), to.reshape(places, (-1,)), axis=0)
    axis = checked_axis(layer.dim, input.rank)

    def common(own: Value, other: Value) -> Value:
        ones = to.constant([1 if k == axis else 0 for k in range(own.rank)], BOOL)
        merged = to.op("Max", to.sizes(own), to.sizes(other))
        return to.op("Expand", own, to.where(ones, to.sizes(own), merged))

    return to.op("GatherElements", common(input, places), common(places, input), axis=axis)


@writes(selection.MaskedSelect)
def masked_select(to: Writer, layer: selection.MaskedSelect, input: Value, mask: Value) -> Value:
    flat = [to.op("Reshape", each, [-1]) for each in _broadcast(to, input, to.cast(mask, BOOL))]
    return to.op("Compress", *flat, axis=0, shape=(None,))


def _broadcast(to: Writer, a: Value, b: Value) -> tuple[Value, Value]:
    if a.sizes == b.sizes:
        return a, b
    return to.op("Expand", a, to.op("Shape", b)), to.op("Expand", b, to.op("Shape", a))


@writes(selection.NonZero)
def nonzero(to: Writer, layer: selection.NonZero, input: Value) -> Value:
    if input.rank == 0:
        to.refuse("the positions in a tensor without dimensions have no counterpart in ONNX")
    return to.op("Transpose", to.op("NonZero", input), perm=[1, 0], shape=(None, input.rank))


@writes(selection.NonZeroByAxis)
def hits_by_axis(to: Writer, layer: object, mask: Value) -> list[Value]:
    """Return the positions of elements that are not zero, a vector an axis."""
    rows = to.op("NonZero", _vector_of(to, mask))
    return [to.take(rows, k, 0, shape=(None,)) for k in range(max(mask.rank, 1))]


# Index tensors


def _slots(to: Writer, expr: Operand) -> list[Value | None]:
    slots = indexing.constant_slots(expr) if isinstance(expr, str) else expr
    return [None if each is None else to.tensor(each) for each in slots]


def _entries(to: Writer, slots: Sequence[Value | None]) -> list[Value | None]:
    """Return a vector or tensor of positions for each leading axis, None for a whole axis."""
    entries: list[Value | None] = []
    for slot in slots:
        if slot is None:
            entries.append(None)
        elif slot.dtype in (np.bool_, np.uint8):
            if slot.rank == 0:
                to.refuse("an index is a mask without dimensions")
            entries += hits_by_axis(to, None, slot)
        else:
            entries.append(to.cast(slot, INT64))
    return entries


def indexed(to: Writer, input: Value, slots: Sequence[Value | None]) -> Value:
    """Write input[slots]."""
    pairs = [(axis, each) for axis, each in enumerate(_entries(to, slots)) if each is not None]
    taken, chosen = [axis for axis, _ in pairs], [each for _, each in pairs]
    if len(taken) < 2:
        return to.take(input, chosen[0], taken[0]) if taken else input
    order = [*taken, *(axis for axis in range(input.rank) if axis not in taken)]
    moved = input if order == list(range(input.rank)) else to.op("Transpose", input, perm=order)
    rank = max(each.rank for each in chosen)
    made = to.op("GatherND", moved, to.op("Concat", *(_column(to, each, chosen) for each in chosen), axis=rank))
    lead = taken[0] if taken[-1] - taken[0] + 1 == len(taken) else 0
    if not lead:
        return made
    back = [*range(rank, rank + lead), *range(rank), *range(rank + lead, rank + input.rank - len(taken))]
    return to.op("Transpose", made, perm=back)


def _column(to: Writer, index: Value, others: Sequence[Value]) -> Value:
    """Return an index broadcast to the shape of all, with a new last axis."""
    x = index
    for other in others:
        if other is not index and not (None not in index.shape and index.sizes == other.sizes):
            x = to.op("Expand", x, to.op("Shape", other))
    return to.op("Unsqueeze", x, [-1])


@writes(indexing.Index)
def index(to: Writer, layer: indexing.Index, input: Value, expr: Operand) -> Value:
    return indexed(to, input, _slots(to, expr))


@writes(indexing.IndexPut)
def index_put(to: Writer, layer: indexing.IndexPut, input: Value, indices: Operand, values: Operand) -> Value:
    way = "add" if layer.accumulate else _REDUCTIONS[layer.reduce or "none"]
    slots = _slots(to, indices)
    mask = slots[0] if len(slots) == 1 else None
    is_single = not isinstance(values, Value) or values.sizes in ((), (1,))
    if mask is not None and mask.dtype == BOOL and is_single and way is None:
        marks = to.reshape(mask, mask.all_sizes() + [1] * (input.rank - mask.rank))
        return to.where(marks, to.tensor(values, input.dtype), input)
    return written(to, input, indexed(to, positions(to, input), slots), values, way)


_REDUCTIONS = {"none": None, "sum": "add", "prod": "mul", "amax": "max", "amin": "min", "add": "add", "multiply": "mul"}


# Scattering


@writes(scatter.Scatter)
def scatter_(to: Writer, layer: scatter.Scatter, input: Value, index: Value, src: Operand) -> Value:
    return _scattered(to, input, index, src, layer.dim, layer.reduce or "none")


def _scattered(to: Writer, input: Value, index: Value, src: Operand, dim: int, way: str) -> Value:
    places = _vector_of(to, to.cast(index, INT64))
    if 0 in places.shape:
        return input
    table, updates = _vector_of(to, input), _updates(to, places, src, input)
    axis = checked_axis(dim, input.rank)
    made = to.op("ScatterElements", table, places, updates, axis=axis, reduction=_REDUCTIONS[way])
    return made if input.rank else to.reshape(made, ())


def _updates(to: Writer, places: Value, src: Operand, input: Value) -> Value:
    """Return the part of the source that lies under the index."""
    value = to.tensor(src, input.dtype)
    if not value.shape:
        return to.op("Expand", value, to.op("Shape", places))
    if value.shape == places.shape and None not in value.shape:
        return value
    return to.op("Slice", value, [0] * value.rank, to.sizes(places), list(range(value.rank)))


@writes(scatter.ScatterReduce)
def scatter_reduce(to: Writer, layer: scatter.ScatterReduce, input: Value, index: Value, src: Value) -> Value:
    def scattered(target: Value, source: Operand, way: str) -> Value:
        return _scattered(to, target, index, source, layer.dim, way)

    return _reduced(to, input, src, layer.reduce, layer.include_self, scattered)


def _reduced(
    to: Writer, input: Value, source: Value, way: str, include_self: bool, scattered: Callable[..., Value]
) -> Value:
    """Write a reduction of all elements that arrive at a place, with or without the input's own."""
    start = input if include_self else scattered(input, to.constant(_neutral(way, input.dtype), input.dtype), "none")
    if way != "mean":
        return scattered(start, source, way)
    ones = to.filled(to.sizes(input), 1, input.dtype)
    count = ones if include_self else scattered(ones, to.constant(0, input.dtype), "none")
    count = to.op("Max", scattered(count, to.constant(1, input.dtype), "sum"), 1, shape=input.sizes)
    mode: Any = None if input.dtype.kind == "f" else "floor"
    return to.apply(Div(rounding_mode=mode), scattered(start, source, "sum"), count)  # type: ignore[no-any-return]


def _neutral(way: str, dtype: Any) -> Any:
    if way in ("amax", "amin"):
        limits: Any = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
        low, high = (-np.inf, np.inf) if dtype.kind == "f" else (limits.min, limits.max)
        return low if way == "amax" else high
    return 1 if way == "prod" else 0


def _slices(to: Writer, input: Value, index: Value, dim: int) -> Value:
    """Return the places of the slices of one axis at the indices."""
    return to.take(_vector_of(to, positions(to, input)), _vector_of(to, index), checked_axis(dim, input.rank))


@writes(scatter.IndexAdd)
def index_add(
    to: Writer, layer: scatter.IndexAdd, input: Value, index: Value, source: Value, alpha: Operand = 1
) -> Value:
    value = to.cast(source, input.dtype)
    value = value * to.tensor(alpha, input.dtype) if isinstance(alpha, Value) or alpha != 1 else value
    return written(to, input, _slices(to, input, index, layer.dim), value, "add")


@writes(scatter.IndexCopy, scatter.IndexFill)
def index_copy(to: Writer, layer: Any, input: Value, index: Value, source: Operand) -> Value:
    return written(to, input, _slices(to, input, index, layer.dim), source)


@writes(scatter.IndexReduce)
def index_reduce(to: Writer, layer: scatter.IndexReduce, input: Value, index: Value, source: Value) -> Value:
    places = _slices(to, input, index, layer.dim)

    def scattered(target: Value, value: Operand, way: str) -> Value:
        return written(to, target, places, value, _REDUCTIONS[way])

    return _reduced(to, input, source, layer.reduce, layer.include_self, scattered)


@writes(scatter.Put)
def put(to: Writer, layer: scatter.Put, input: Value, index: Value, source: Value) -> Value:
    value = to.op("Reshape", to.cast(source, input.dtype), to.sizes(index))
    return written(to, input, to.cast(index, INT64), value, "add" if layer.accumulate else None)


# Masks


@writes(masking.MaskedFill)
def masked_fill(to: Writer, layer: masking.MaskedFill, input: Value, mask: Value, value: Operand) -> Value:
    return to.where(to.cast(mask, BOOL), to.reshape(to.tensor(value, input.dtype), ()), input)


@writes(masking.MaskedScatter)
def masked_scatter(to: Writer, layer: masking.MaskedScatter, input: Value, mask: Value, source: Value) -> Value:
    table, hits = _broadcast(to, input, to.cast(mask, BOOL))
    flat = to.op("Reshape", hits, [-1])
    places = to.op("Max", to.op("CumSum", to.cast(flat, INT64), 0) - 1, 0)
    row = to.op("Reshape", to.cast(source, input.dtype), [-1])
    values = to.take(row, to.op("Min", places, to.op("Size", source) - 1), 0)
    return to.where(hits, to.op("Reshape", values, to.op("Shape", hits)), table)


@writes(masking.Where)
def where_(to: Writer, layer: masking.Where, condition: Value, input: Operand = None, other: Operand = None) -> Any:
    if input is None or other is None:
        return hits_by_axis(to, layer, condition)
    (x, y), _ = to.common(input, other)
    return to.where(to.cast(condition, BOOL), x, y)


@writes(masking.Fill)
def fill(to: Writer, layer: masking.Fill, input: Value, value: Operand) -> Value:
    return to.op("Expand", to.reshape(to.tensor(value, input.dtype), ()), to.sizes(input))


@writes(masking.Copy)
def copy(to: Writer, layer: masking.Copy, input: Value, src: Value) -> Value:
    value = to.cast(src, input.dtype)
    return value if input.sizes == src.sizes and None not in input.shape else to.op("Expand", value, to.sizes(input))


@writes(masking.Triangle)
def triangle(to: Writer, layer: masking.Triangle, input: Value) -> Value:
    return to.op("Trilu", input, to.constant(layer.diagonal, INT64), upper=int(layer.is_upper))


# Tables


@writes(embedding.Embedding)
def embedding_(to: Writer, layer: embedding.Embedding, input: Value, weight: Value) -> Value:
    whole = input if input.dtype in (INT64, np.int32) else to.cast(input, INT64)
    return to.op("Gather", weight, whole, axis=0)
