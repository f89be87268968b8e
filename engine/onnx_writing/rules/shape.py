"""Other shapes, orders and repetitions of the same elements."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine.layers.operands.axes import checked_axes, checked_axis
from engine.layers.shape import expand, permute, shape
from engine.onnx_writing.registry import writes
from engine.onnx_writing.value import Operand, Value, holds_value
from engine.onnx_writing.writer import INT64, Writer
from engine.tensor import Shape


@writes(shape.Reshape, dynamic=("shape",))
def reshape(to: Writer, layer: shape.Reshape, input: Value) -> Value:
    wanted = layer.shape
    if isinstance(wanted, Value):
        return to.op("Reshape", input, to.vector(wanted), allowzero=None if layer.zero_copies else 1)
    if not holds_value(wanted):
        known = layer._shape(input.shape)
        if sum(size is None for size in known) <= 1:
            return to.like(input, known)
        wanted = layer._wanted(input.shape) if layer.annotations.outputs else wanted
        kept = [_copied(input, axis, size) for axis, size in enumerate(wanted)]
        return to.op("Reshape", input, to.vector(kept))
    items = [_copied(input, axis, size) if layer.zero_copies else size for axis, size in enumerate(wanted)]
    has_zero = any(not isinstance(each, Value) and each == 0 for each in items)
    return to.op("Reshape", input, to.vector(items), allowzero=1 if has_zero and not layer.zero_copies else None)


def _copied(input: Value, axis: int, size: Any) -> Any:
    """Return a size as ONNX has it: 0 where it is the input's own dynamic size."""
    is_own = size is None and axis < input.rank and input.shape[axis] is None
    return 0 if is_own else -1 if size is None else size


@writes(shape.ReshapeAs)
def reshape_as(to: Writer, layer: shape.ReshapeAs, input: Value, other: Value) -> Value:
    return to.op("Reshape", input, to.sizes(other), allowzero=1)


@writes(shape.Flatten)
def flatten(to: Writer, layer: shape.Flatten, input: Value) -> Value:
    start, end = (checked_axis(dim, input.rank) for dim in (layer.start_dim, layer.end_dim))
    if input.rank == 0:
        return to.reshape(input, (1,))
    if start == end:
        return input
    sizes = [0] * start + [-1] + [to.size(input, axis) for axis in range(end + 1, input.rank)]
    known = [size if size is not None else None for size in layer._shape(input.shape)]
    if sum(size is None for size in known) <= 1 and 0 not in known:
        return to.like(input, tuple(known))
    return to.op("Reshape", input, to.vector(sizes))


@writes(shape.Unflatten, dynamic=("sizes",))
def unflatten(to: Writer, layer: shape.Unflatten, input: Value) -> Value:
    axis = checked_axis(layer.dim, input.rank)
    lead = [to.size(input, k) for k in range(axis)]
    tail = [to.size(input, k) for k in range(axis + 1, input.rank)]
    return to.reshape(input, [*lead, *layer.sizes, *tail])


@writes(shape.Squeeze)
def squeeze(to: Writer, layer: shape.Squeeze, input: Value) -> Value:
    axes = [axis for axis in layer._axes(input.rank) if input.shape[axis] != 1 and input.shape[axis] is not None]
    gone = [axis for axis in layer._axes(input.rank) if axis not in axes]
    if any(input.shape[axis] is None for axis in gone):
        to.refuse("whether an axis of dynamic size is 1 is unknown before a run", "export the model with fixed sizes")
    return to.squeeze(input, *gone) if gone else input


@writes(shape.Unsqueeze)
def unsqueeze(to: Writer, layer: shape.Unsqueeze, input: Operand) -> Value:
    value = to.tensor(input)
    axes = checked_axes(layer.dim, value.rank + len(layer.dim))
    return replace(to.unsqueeze(value, *axes), is_number=False)


@writes(shape.AtLeast)
def at_least(to: Writer, layer: shape.AtLeast, input: Value) -> Value:
    missing = layer.rank - input.rank
    if missing <= 0:
        return input
    if layer.rank == 3 and input.rank > 0:
        return to.unsqueeze(input, *range(2 - input.rank), -1)
    return to.unsqueeze(input, *range(missing))


@writes(shape.AsStrided)
def as_strided(to: Writer, layer: shape.AsStrided, input: Value) -> Value:
    import numpy as np

    places = np.full((), layer.storage_offset or 0, np.int64)
    for size, step in zip(layer.size, layer.stride, strict=True):
        places = places[..., None] + np.arange(size) * step
    flat = to.reshape(input, (-1,))
    return to.op("Gather", flat, to.constant(places, INT64), axis=0)


# Order


@writes(permute.Permute, permute.Transpose, permute.Reversal, permute.MoveDim)
def transpose(to: Writer, layer: Any, input: Value) -> Value:
    return to.transpose(input, layer._order(input.rank))


@writes(permute.Flip)
def flip(to: Writer, layer: permute.Flip, input: Value) -> Value:
    axes = list(layer._axes(input.rank))
    return flipped(to, input, axes) if axes else input


def flipped(to: Writer, input: Value, axes: list[int]) -> Value:
    """Return a value with elements in reverse order along axes."""
    count = len(axes)
    bounds = [[-1] * count, [-(2**63)] * count, axes, [-1] * count]
    return to.op("Slice", input, *(to.constant(each, INT64) for each in bounds), shape=input.sizes)


@writes(permute.Roll)
def roll(to: Writer, layer: permute.Roll, input: Value) -> Value:
    axes = layer._axes(input.rank)
    if not axes:
        flat = _rolled(to, to.reshape(input, (-1,)), 0, layer.shifts[0], input)
        return to.op("Reshape", flat, to.sizes(input))
    x = input
    for axis, shift in zip(axes, layer.shifts, strict=True):
        x = _rolled(to, x, axis, shift, x)
    return x


def _rolled(to: Writer, x: Value, axis: int, shift: int, whole: Value) -> Value:
    size = x.shape[axis]
    if size is not None and size > 0:
        shift %= size
    if shift == 0 or size == 0:
        return x
    if size is None and abs(shift) > 1:
        to.refuse("an axis of dynamic size is rolled", "export the model with fixed sizes")
    parts = [to.slice(x, axis, -shift, 2**63 - 1), to.slice(x, axis, 0, -shift)]
    return to.op("Concat", *parts, axis=axis, shape=x.shape)


# Repetition


@writes(expand.Expand, dynamic=("sizes",))
def expand_(to: Writer, layer: expand.Expand, input: Value) -> Value:
    sizes = layer.sizes
    if isinstance(sizes, Value):
        return to.op("Expand", input, to.vector(sizes))
    if not holds_value(sizes) and _result(layer, input) == input.shape and None not in input.shape:
        return input
    kept = [1 if not isinstance(size, Value) and size in (-1, None) else size for size in sizes]
    return to.op("Expand", input, to.vector(kept))


def _result(layer: expand.Expand, input: Value) -> Shape:
    return layer._shape(input.shape)


@writes(expand.ExpandAs)
def expand_as(to: Writer, layer: expand.ExpandAs, input: Value, other: Value) -> Value:
    return to.op("Expand", input, to.sizes(other))


@writes(expand.BroadcastTensors)
def broadcast_tensors(to: Writer, layer: expand.BroadcastTensors, tensors: list[Value]) -> list[Value]:
    if len(tensors) == 1:
        return tensors
    sizes = [to.sizes(each) for each in tensors]
    longest = max(each.rank for each in tensors)
    ones = [to.constant([1] * (longest - each.rank), INT64) for each in tensors]
    full = [to.op("Concat", one, each, axis=0) for one, each in zip(ones, sizes, strict=True)]
    common = to.op("Max", *full)
    return [to.op("Expand", each, common) for each in tensors]


@writes(expand.Repeat, expand.Tile, dynamic=("sizes", "dims"))
def repeat(to: Writer, layer: Any, input: Value) -> Value:
    counts = layer.sizes if isinstance(layer, expand.Repeat) else layer.dims
    if isinstance(counts, Value):
        (length,) = to.known(counts.shape, "the number of repetitions")
        lead = to.constant([1] * (input.rank - length), INT64)
        counts = to.op("Concat", lead, to.vector(counts), axis=0, shape=(max(length, input.rank),))
    else:
        counts = to.vector([1] * (input.rank - len(counts)) + list(counts))
    missing = (counts.shape[0] or 0) - input.rank
    return to.op("Tile", to.unsqueeze(input, *range(missing)) if missing > 0 else input, counts)


@writes(expand.RepeatInterleave, dynamic=("output_size",))
def repeat_interleave(to: Writer, layer: expand.RepeatInterleave, input: Value, repeats: Operand) -> Value:
    axis = 0 if layer.dim is None or input.rank == 0 else checked_axis(layer.dim, input.rank)
    x = to.reshape(input, (-1,)) if layer.dim is None or input.rank == 0 else input
    counts = to.tensor(repeats, INT64)
    if counts.constant is not None and counts.constant.size == 1:
        count = int(counts.constant.item())
        longer = to.op("Tile", to.unsqueeze(x, axis + 1), to.constant(
            [count if k == axis + 1 else 1 for k in range(x.rank + 1)], INT64))  # fmt: skip
        sizes = [to.size(x, k) for k in range(x.rank)]
        sizes[axis] = -1
        return to.op("Reshape", longer, to.vector(sizes))
    return to.op("Gather", x, repetitions_of(to, counts), axis=axis)


@writes(expand.Repetitions)
def repetitions(to: Writer, layer: expand.Repetitions, repeats: Value) -> Value:
    return repetitions_of(to, to.cast(repeats, INT64))


def repetitions_of(to: Writer, counts: Value) -> Value:
    """Write i repeated counts[i] times: the number of ends that are not beyond a place."""
    ends = to.op("CumSum", counts, to.constant(0, INT64))
    total = to.op("ReduceSum", counts, keepdims=0)
    places = to.op("Range", to.constant(0, INT64), total, to.constant(1, INT64))
    column = to.op("Unsqueeze", places, to.constant([1], INT64))
    beyond = to.op("Cast", to.op("LessOrEqual", ends, column), dtype=INT64, to=to.code(INT64))
    return to.op("ReduceSum", beyond, to.constant([1], INT64), keepdims=0, shape=(None,))
