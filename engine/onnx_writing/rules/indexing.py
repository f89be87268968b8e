"""Elements chosen by position or by a mask, read and written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.layers.indexing import indexing, masking, scatter, selection, slicing
from engine.layers.linear import embedding
from engine.layers.operands.axes import checked_axes, checked_axis
from engine.layers.shape import diagonal
from engine.onnx_writing.registry import writes
from engine.onnx_writing.value import Operand, Value
from engine.onnx_writing.writer import BOOL, INT64, Writer

END = 2**63 - 1


# Slices


@writes(slicing.Slice, dynamic=("starts", "ends", "steps", "selects"))
def slice_(to: Writer, layer: slicing.Slice, input: Value) -> Value:
    return window(to, layer, input)


def window(to: Writer, layer: slicing._Window, input: Value) -> Value:
    """Write the part of a tensor that a slice reads or writes."""
    axes = checked_axes(layer.dims, input.rank)
    items = [item for item in range(len(axes)) if not _selects(layer, item)]
    x = input
    if items:
        steps = [layer.steps[item] if layer.steps else 1 for item in items]
        starts = [_start(layer, item, step) for item, step in zip(items, steps, strict=True)]
        ends = [layer.ends[item] if layer.ends else END for item in items]
        if not _is_whole(starts, ends, steps):
            bounds = [to.vector(each) for each in (starts, ends, [axes[item] for item in items], steps)]
            x = to.op("Slice", x, *bounds)
    chosen = [(axes[item], layer.selects[item]) for item in range(len(axes)) if item not in items]
    for axis, place in sorted(chosen, key=lambda each: -each[0]):
        scalar = to.reshape(to.tensor(place, INT64), ())
        x = to.op("Gather", x, scalar, axis=axis)
    return x


def _selects(layer: slicing._Window, item: int) -> bool:
    select: Any = layer.selects[item] if layer.selects else slicing.NOT_SELECTED
    return isinstance(select, Value) or select != slicing.NOT_SELECTED


def _start(layer: slicing._Window, item: int, step: Any) -> Any:
    if layer.starts:
        return layer.starts[item]
    return END if not isinstance(step, Value) and step < 0 else 0


def _is_whole(starts: Sequence[Any], ends: Sequence[Any], steps: Sequence[Any]) -> bool:
    known = not any(isinstance(each, Value) for each in (*starts, *ends, *steps))
    return known and set(starts) == {0} and min(ends) >= 2**31 - 1 and set(steps) == {1}


@writes(slicing.Select, dynamic=("index",))
def select(to: Writer, layer: slicing.Select, input: Value) -> Value:
    index: Any = layer.index
    axis = checked_axis(layer.dim, input.rank)
    if isinstance(index, Value):
        return to.op("Gather", input, to.cast(index, INT64), axis=axis)
    if len(index) == 1 and not layer._keeps_axis:
        return to.op("Gather", input, to.reshape(to.tensor(index[0], INT64), ()), axis=axis)
    return to.op("Gather", input, to.vector(list(index)), axis=axis)


@writes(slicing.Narrow, dynamic=("start", "length"))
def narrow(to: Writer, layer: slicing.Narrow, input: Value) -> Value:
    bounds: tuple[Any, Any] = (layer.start[0], layer.length[0])
    start, length = bounds
    if isinstance(start, Value) or isinstance(length, Value):
        first = to.vector([start])
        end = to.op("Add", first, to.vector([length]), shape=(1,))
        return to.slice(input, layer.dim, first, end)
    end = start + length
    return to.slice(input, layer.dim, start, END if start < 0 and end == 0 else end)


@writes(slicing.Windows)
def windows(to: Writer, layer: slicing.Windows, input: Value) -> Value:
    axis = layer._axis(input.shape)
    starts = _window_starts(to, input, axis, layer.size, layer.step)
    places = to.op("Add", to.op("Unsqueeze", starts, to.constant([1], INT64)), to.constant(np.arange(layer.size)))
    gathered = to.op("Gather", input, places, axis=axis)
    order = [place for place in range(input.rank + 1) if place != axis + 1]
    return to.op("Transpose", gathered, perm=[*order, axis + 1])


def _window_starts(to: Writer, input: Value, axis: int, size: int, step: int) -> Value:
    length = input.shape[axis]
    if length is not None:
        return to.constant(np.arange(0, length - size + 1, step), INT64)
    end = to.op("Sub", to.tensor(to.size(input, axis)), to.constant(size - 1, INT64))
    return to.op("Range", to.constant(0, INT64), end, to.constant(step, INT64))


# Writing: as positions in the flattened tensor, which are read like the elements


def positions(to: Writer, input: Value) -> Value:
    """Return a tensor of the input's shape with the place of every element in the flattened input."""
    count = to.op("Size", input, dtype=INT64, shape=())
    numbers = to.op("Range", to.constant(0, INT64), count, to.constant(1, INT64), shape=(None,))
    return to.op("Reshape", numbers, to.sizes(input), shape=input.shape)


def written(to: Writer, input: Value, places: Value, source: Operand, reduction: str | None = None) -> Value:
    """Write a source, broadcast to the places, at positions of the flattened input."""
    value = to.tensor(source, input.dtype)
    spread = to.op("Expand", value, to.op("Shape", places, dtype=INT64))
    flat = [to.op("Reshape", each, to.constant([-1], INT64)) for each in (input, places, spread)]
    made = to.op("ScatterElements", *flat, axis=0, reduction=reduction)
    return to.op("Reshape", made, to.sizes(input))


@writes(slicing.SliceCopy, slicing.SliceScatter, dynamic=("starts", "ends", "steps", "selects"))
def slice_copy(to: Writer, layer: Any, input: Value, src: Value) -> Value:
    return written(to, input, window(to, layer, positions(to, input)), src)


@writes(diagonal.Diagonal)
def diagonal_(to: Writer, layer: diagonal.Diagonal, input: Value) -> Value:
    return _diagonal(to, layer, input)


def _diagonal(to: Writer, layer: Any, input: Value) -> Value:
    """Write a diagonal of each plane, as the last axis."""
    first, second = checked_axes((layer.dim1, layer.dim2), input.rank)
    rows, columns = to.known((input.shape[first], input.shape[second]), "the size of a plane")
    places = np.arange(columns)[None] - np.arange(rows)[:, None] == layer.offset
    flat = np.flatnonzero(places)
    order = [axis for axis in range(input.rank) if axis not in (first, second)]
    moved = to.op("Transpose", input, perm=[*order, first, second])
    lines = to.op("Reshape", moved, to.constant([*([0] * len(order)), rows * columns], INT64))
    return to.op("Gather", lines, to.constant(flat, INT64), axis=len(order))


@writes(diagonal.DiagonalScatter)
def diagonal_scatter(to: Writer, layer: diagonal.DiagonalScatter, input: Value, src: Value) -> Value:
    return written(to, input, _diagonal(to, layer, positions(to, input)), src)


@writes(diagonal.DiagonalEmbed)
def diagonal_embed(to: Writer, layer: diagonal.DiagonalEmbed, input: Value) -> Value:
    shape = to.known(layer._shape(input.shape), "the size of a diagonal")
    zeros = to.op("ConstantOfShape", to.constant(list(shape), INT64), dtype=input.dtype, shape=shape,
                  value=np.zeros(1, input.dtype))  # fmt: skip
    return written(to, zeros, _diagonal(to, layer, positions(to, zeros)), input)


@writes(diagonal.FillDiagonal)
def fill_diagonal(to: Writer, layer: diagonal.FillDiagonal, input: Value, fill_value: Operand) -> Value:
    shape = to.known(input.shape, "the size of a diagonal")
    marks = np.zeros(shape, np.bool_)
    np.fill_diagonal(marks, True, layer.wrap)
    return to.where(to.constant(marks), to.tensor(fill_value, input.dtype), input)


# Positions


@writes(selection.Gather)
def gather(to: Writer, layer: selection.Gather, input: Value, index: Value) -> Value:
    axis = checked_axis(layer.dim, input.rank)
    table = input if input.rank else to.reshape(input, (1,))
    places = to.cast(index, INT64)
    flat = places if index.rank else to.reshape(places, (1,))
    made = to.op("GatherElements", table, flat, axis=axis)
    return made if index.rank else to.reshape(made, ())


@writes(selection.IndexSelect)
def index_select(to: Writer, layer: selection.IndexSelect, input: Value, index: Value) -> Value:
    axis = layer._axis(input.shape, index.shape)
    places = to.cast(index, INT64)
    if layer.counts_back:
        return to.op("Gather", input, places, axis=axis)
    table = input if input.rank else to.reshape(input, (1,))
    made = to.op("Gather", table, places if index.rank else to.reshape(places, (1,)), axis=axis)
    return made if input.rank else to.reshape(made, ())


@writes(selection.Take)
def take(to: Writer, layer: selection.Take, input: Value, index: Value) -> Value:
    return to.op("Gather", to.reshape(input, (-1,)), to.cast(index, INT64), axis=0)


@writes(selection.TakeAlongDim)
def take_along_dim(to: Writer, layer: selection.TakeAlongDim, input: Value, indices: Value) -> Value:
    places = to.cast(indices, INT64)
    if layer.dim is None:
        return to.op("GatherElements", to.reshape(input, (-1,)), to.reshape(places, (-1,)), axis=0)
    axis = layer._axis(input.shape, indices.shape)

    def common(own: Value, other: Value) -> Value:
        ones = to.constant([1 if k == axis else 0 for k in range(own.rank)], BOOL)
        merged = to.op("Max", to.sizes(own), to.sizes(other))
        return to.op("Expand", own, to.where(ones, to.sizes(own), merged))

    return to.op("GatherElements", common(input, places), common(places, input), axis=axis)


@writes(selection.MaskedSelect)
def masked_select(to: Writer, layer: selection.MaskedSelect, input: Value, mask: Value) -> Value:
    table, hits = _broadcast(to, input, to.cast(mask, BOOL))
    flat = [to.op("Reshape", each, to.constant([-1], INT64)) for each in (table, hits)]
    return to.op("Compress", *flat, axis=0, shape=(None,))


def _broadcast(to: Writer, a: Value, b: Value) -> tuple[Value, Value]:
    if a.sizes == b.sizes:
        return a, b
    return to.op("Expand", a, to.op("Shape", b, dtype=INT64)), to.op("Expand", b, to.op("Shape", a, dtype=INT64))


@writes(selection.NonZero)
def nonzero(to: Writer, layer: selection.NonZero, input: Value) -> Value:
    if input.rank == 0:
        to.refuse("the positions in a tensor without dimensions have no counterpart in ONNX")
    return to.op("Transpose", to.op("NonZero", input, dtype=INT64), perm=[1, 0], shape=(None, input.rank))


@writes(selection.NonZeroByAxis)
def nonzero_by_axis(to: Writer, layer: selection.NonZeroByAxis, input: Value) -> list[Value]:
    return hits_by_axis(to, input)


def hits_by_axis(to: Writer, mask: Value) -> list[Value]:
    """Return the positions of elements that are not zero, a vector an axis."""
    table = mask if mask.rank else to.reshape(mask, (1,))
    rows = to.op("NonZero", table, dtype=INT64)
    return [to.op("Gather", rows, to.constant(k, INT64), axis=0, shape=(None,)) for k in range(max(mask.rank, 1))]


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
            entries += hits_by_axis(to, slot)
        else:
            entries.append(to.cast(slot, INT64))
    return entries


def indexed(to: Writer, input: Value, slots: Sequence[Value | None]) -> Value:
    """Write input[slots]."""
    entries = _entries(to, slots)
    taken = [axis for axis, each in enumerate(entries) if each is not None]
    chosen = [each for each in entries if each is not None]
    if not taken:
        return input
    if len(taken) == 1:
        return to.op("Gather", input, chosen[0], axis=taken[0])
    order = [*taken, *(axis for axis in range(input.rank) if axis not in taken)]
    moved = input if order == list(range(input.rank)) else to.op("Transpose", input, perm=order)
    rank = max(each.rank for each in chosen)
    places = to.op("Concat", *(_column(to, each, chosen) for each in chosen), axis=rank)
    made = to.op("GatherND", moved, places)
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
            x = to.op("Expand", x, to.op("Shape", other, dtype=INT64))
    return to.op("Unsqueeze", x, to.constant([-1], INT64))


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
        shape = to.vector([to.size(mask, axis) for axis in range(mask.rank)] + [1] * (input.rank - mask.rank))
        marks = mask if mask.rank == input.rank else to.op("Reshape", mask, shape)
        return to.where(marks, to.tensor(values, input.dtype), input)
    return written(to, input, indexed(to, positions(to, input), slots), values, way)


_REDUCTIONS = {"none": None, "sum": "add", "prod": "mul", "amax": "max", "amin": "min", "add": "add", "multiply": "mul"}


# Scattering


@writes(scatter.Scatter)
def scatter_(to: Writer, layer: scatter.Scatter, input: Value, index: Value, src: Operand) -> Value:
    return _scattered(to, input, index, src, layer.dim, _REDUCTIONS[layer.reduce or "none"])


def _scattered(to: Writer, input: Value, index: Value, src: Operand, dim: int, reduction: str | None) -> Value:
    axis = checked_axis(dim, input.rank)
    table = input if input.rank else to.reshape(input, (1,))
    places = to.cast(index if index.rank else to.reshape(index, (1,)), INT64)
    if 0 in places.shape:
        return input
    made = to.op("ScatterElements", table, places, _updates(to, places, src, input), axis=axis, reduction=reduction)
    return made if input.rank else to.reshape(made, ())


def _updates(to: Writer, places: Value, src: Operand, input: Value) -> Value:
    """Return the part of the source that lies under the index."""
    value = to.tensor(src, input.dtype)
    if not value.shape:
        return to.op("Expand", value, to.op("Shape", places, dtype=INT64))
    if value.shape == places.shape and None not in value.shape:
        return value
    zeros = to.constant([0] * value.rank, INT64)
    return to.op("Slice", value, zeros, to.sizes(places), to.constant(list(range(value.rank)), INT64))


@writes(scatter.ScatterReduce)
def scatter_reduce(to: Writer, layer: scatter.ScatterReduce, input: Value, index: Value, src: Value) -> Value:
    def scattered(target: Value, source: Operand, way: str) -> Value:
        return _scattered(to, target, index, source, layer.dim, _REDUCTIONS[way] if way != "none" else None)

    return _reduced(to, input, src, layer.reduce, layer.include_self, scattered)


def _reduced(to: Writer, input: Value, source: Value, way: str, include_self: bool, scattered: Any) -> Value:
    """Write a reduction of all elements that arrive at a place, with or without the input's own."""
    start = input
    if not include_self:
        start = scattered(input, to.constant(_neutral(way, input.dtype), input.dtype), "none")
    if way != "mean":
        return scattered(start, source, way)  # type: ignore[no-any-return]
    total = scattered(start, source, "sum")
    ones = to.op("ConstantOfShape", to.sizes(input), dtype=input.dtype, shape=input.shape,
                 value=np.ones(1, input.dtype))  # fmt: skip
    count = ones if include_self else scattered(ones, to.constant(0, input.dtype), "none")
    count = scattered(count, to.constant(1, input.dtype), "sum")
    count = to.op("Max", count, to.constant(1, input.dtype))
    return to.apply(_division(input), total, count)  # type: ignore[no-any-return]


def _division(input: Value) -> Any:
    from engine.layers.elementwise.arithmetic import Div

    return Div(rounding_mode=None if input.dtype.kind == "f" else "floor")


def _neutral(way: str, dtype: Any) -> Any:
    if way in ("amax", "amin"):
        limits: Any = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
        low, high = (-np.inf, np.inf) if dtype.kind == "f" else (limits.min, limits.max)
        return low if way == "amax" else high
    return 1 if way == "prod" else 0


def _slices(to: Writer, input: Value, index: Value, dim: int) -> Value:
    """Return the places of the slices of one axis at the indices."""
    places = to.cast(index, INT64)
    vector = places if index.rank else to.reshape(places, (1,))
    table = positions(to, input)
    if not input.rank:
        table = to.reshape(table, (1,))
    return to.op("Gather", table, vector, axis=checked_axis(dim, input.rank), shape=None)


@writes(scatter.IndexAdd)
def index_add(
    to: Writer, layer: scatter.IndexAdd, input: Value, index: Value, source: Value, alpha: Operand = 1
) -> Value:
    value = to.cast(source, input.dtype)
    if isinstance(alpha, Value) or alpha != 1:
        value = to.op("Mul", value, to.tensor(alpha, input.dtype), shape=source.sizes)
    return written(to, input, _slices(to, input, index, layer.dim), value, "add")


@writes(scatter.IndexCopy, scatter.IndexFill)
def index_copy(to: Writer, layer: Any, input: Value, index: Value, source: Operand) -> Value:
    return written(to, input, _slices(to, input, index, layer.dim), source)


@writes(scatter.IndexReduce)
def index_reduce(to: Writer, layer: scatter.IndexReduce, input: Value, index: Value, source: Value) -> Value:
    places = _slices(to, input, index, layer.dim)

    def scattered(target: Value, value: Operand, way: str) -> Value:
        made = written(to, target, places, value, _REDUCTIONS[way] if way != "none" else None)
        return to.op("Identity", made, shape=input.shape)

    return _reduced(to, input, source, layer.reduce, layer.include_self, scattered)


@writes(scatter.Put)
def put(to: Writer, layer: scatter.Put, input: Value, index: Value, source: Value) -> Value:
    places = to.cast(index, INT64)
    value = to.op("Reshape", to.cast(source, input.dtype), to.sizes(index))
    return written(to, input, places, value, "add" if layer.accumulate else None)


# Masks


@writes(masking.MaskedFill)
def masked_fill(to: Writer, layer: masking.MaskedFill, input: Value, mask: Value, value: Operand) -> Value:
    filler = to.tensor(value, input.dtype)
    filler = filler if filler.sizes == () else to.reshape(filler, ())
    return to.where(to.cast(mask, BOOL), filler, input)


@writes(masking.MaskedScatter)
def masked_scatter(to: Writer, layer: masking.MaskedScatter, input: Value, mask: Value, source: Value) -> Value:
    table, hits = _broadcast(to, input, to.cast(mask, BOOL))
    flat = to.op("Reshape", hits, to.constant([-1], INT64))
    counts = to.op("CumSum", to.op("Cast", flat, dtype=INT64, to=to.code(INT64)), to.constant(0, INT64))
    places = to.op("Max", to.op("Sub", counts, to.constant(1, INT64)), to.constant(0, INT64))
    row = to.op("Reshape", to.cast(source, input.dtype), to.constant([-1], INT64))
    last = to.op("Sub", to.op("Size", source, dtype=INT64), to.constant(1, INT64))
    values = to.op("Gather", row, to.op("Min", places, last), axis=0)
    shaped = to.op("Reshape", values, to.op("Shape", hits, dtype=INT64))
    return to.where(hits, shaped, table)


@writes(masking.Where)
def where_(to: Writer, layer: masking.Where, condition: Value, input: Operand = None, other: Operand = None) -> Any:
    if input is None or other is None:
        return hits_by_axis(to, condition)
    (x, y), dtype = to.common(input, other)
    return to.where(to.cast(condition, BOOL), x, y)


@writes(masking.Fill)
def fill(to: Writer, layer: masking.Fill, input: Value, value: Operand) -> Value:
    filler = to.tensor(value, input.dtype)
    return to.op("Expand", filler if filler.sizes == () else to.reshape(filler, ()), to.sizes(input))


@writes(masking.Copy)
def copy(to: Writer, layer: masking.Copy, input: Value, src: Value) -> Value:
    value = to.cast(src, input.dtype)
    return value if input.sizes == src.sizes and None not in input.shape else to.op("Expand", value, to.sizes(input))


@writes(masking.Triangle)
def triangle(to: Writer, layer: masking.Triangle, input: Value) -> Value:
    wide = input.dtype if input.dtype.kind == "f" or input.dtype in (INT64, BOOL) else INT64
    kept = to.op("Trilu", to.cast(input, wide), to.constant(layer.diagonal, INT64), upper=int(layer.is_upper))
    return to.cast(kept, input.dtype)


# Tables


@writes(embedding.Embedding)
def embedding_(to: Writer, layer: embedding.Embedding, input: Value, weight: Value) -> Value:
    whole = input if input.dtype in (INT64, np.int32) else to.cast(input, INT64)
    return to.op("Gather", weight, whole, axis=0, dtype=weight.dtype)
