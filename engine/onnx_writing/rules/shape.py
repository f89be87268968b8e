"""Other shapes, orders and repetitions of the same elements."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from engine.layers.operands.axes import checked_axes, checked_axis
from engine.layers.shape import expand, permute, shape
from engine.onnx_writing.registry import writes
from engine.onnx_writing.value import Operand, Value, holds_value
from engine.onnx_writing.writer import END, INT64, Writer


@writes(shape.Reshape, dynamic=("shape",))
def reshape(to: Writer, layer: shape.Reshape, input: Value) -> Value:
    wanted = layer.shape
    if isinstance(wanted, Value):
        return to.op("Reshape", input, to.vector(wanted), allowzero=None if layer.zero_copies else 1)
    if not holds_value(wanted):
        known = to.inferred(layer, input).shape
        if sum(size is None for size in known) <= 1:
            return to.like(input, known)
        wanted = layer.wanted(input.shape) if layer.annotations.outputs else wanted
        return to.op("Reshape", input, to.vector([_copied(input, axis, size) for axis, size in enumerate(wanted)]))
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
    known = to.inferred(layer, input).shape
    if sum(size is None for size in known) <= 1 and 0 not in known:
        return to.like(input, known)
    return to.op("Reshape", input, to.vector([0] * start + [-1] + input.all_sizes()[end + 1 :]))


@writes(shape.Unflatten, dynamic=("sizes",))
def unflatten(to: Writer, layer: shape.Unflatten, input: Value) -> Value:
    axis, sizes = checked_axis(layer.dim, input.rank), input.all_sizes()
    return to.reshape(input, [*sizes[:axis], *layer.sizes, *sizes[axis + 1 :]])


@writes(shape.Squeeze)
def squeeze(to: Writer, layer: shape.Squeeze, input: Value) -> Value:
    gone = [axis for axis in layer.axes(input.rank) if input.shape[axis] in (1, None)]
    if any(input.shape[axis] is None for axis in gone):
        to.refuse("whether an axis of dynamic size is 1 is unknown before a run", "export the model with fixed sizes")
    return to.squeeze(input, *gone) if gone else input


@writes(shape.Unsqueeze)
def unsqueeze(to: Writer, layer: shape.Unsqueeze, input: Operand) -> Value:
    value = to.tensor(input)
    return replace(to.unsqueeze(value, *checked_axes(layer.dim, value.rank + len(layer.dim))), is_number=False)


@writes(shape.AtLeast)
def at_least(to: Writer, layer: shape.AtLeast, input: Value) -> Value:
    missing = layer.rank - input.rank
    is_image = layer.rank == 3 and 0 < input.rank < 3
    return to.unsqueeze(input, *((*range(missing - 1), -1) if is_image else range(missing)))


@writes(shape.AsStrided)
def as_strided(to: Writer, layer: shape.AsStrided, input: Value) -> Value:
    places = np.full((), layer.storage_offset or 0, np.int64)
    for size, step in zip(layer.size, layer.stride, strict=True):
        places = places[..., None] + np.arange(size) * step
    return to.take(to.reshape(input, (-1,)), places, 0)


# Order


@writes(permute.Permute, permute.Transpose, permute.Reversal, permute.MoveDim)
def transpose(to: Writer, layer: Any, input: Value) -> Value:
    return to.transpose(input, layer.order(input.rank))


@writes(permute.Flip)
def flip(to: Writer, layer: permute.Flip, input: Value) -> Value:
    axes = list(layer.axes(input.rank))
    return flipped(to, input, axes) if axes else input


def flipped(to: Writer, input: Value, axes: list[int]) -> Value:
    """Return a value with elements in reverse order along axes."""
    count = len(axes)
    return to.op("Slice", input, [-1] * count, [-(2**63)] * count, axes, [-1] * count, shape=input.sizes)


@writes(permute.Roll)
def roll(to: Writer, layer: permute.Roll, input: Value) -> Value:
    axes = layer.axes(input.rank)
    if not axes:
        return to.op("Reshape", _rolled(to, to.reshape(input, (-1,)), 0, layer.shifts[0]), to.sizes(input))
    x = input
    for axis, shift in zip(axes, layer.shifts, strict=True):
        x = _rolled(to, x, axis, shift)
    return x


def _rolled(to: Writer, x: Value, axis: int, shift: int) -> Value:
    size = x.shape[axis]
    shift = shift % size if size else shift
    if shift == 0 or size == 0:
        return x
    if size is None and abs(shift) > 1:
        to.refuse("an axis of dynamic size is rolled", "export the model with fixed sizes")
    return to.op("Concat", to.slice(x, axis, -shift, END), to.slice(x, axis, 0, -shift), axis=axis, shape=x.shape)


# Repetition


@writes(expand.Expand, dynamic=("sizes",))
def expand_(to: Writer, layer: expand.Expand, input: Value) -> Value:
    sizes = layer.sizes
    if isinstance(sizes, Value):
        return to.op("Expand", input, to.vector(sizes))
    if not holds_value(sizes) and None not in input.shape and to.inferred(layer, input).shape == input.shape:
        return input
    kept = [1 if not isinstance(size, Value) and size in (-1, None) else size for size in sizes]
    return to.op("Expand", input, to.vector(kept))


@writes(expand.ExpandAs)
def expand_as(to: Writer, layer: expand.ExpandAs, input: Value, other: Value) -> Value:
    return to.op("Expand", input, to.sizes(other))


@writes(expand.BroadcastTensors)
def broadcast_tensors(to: Writer, layer: expand.BroadcastTensors, tensors: list[Value]) -> list[Value]:
    if len(tensors) == 1:
        return tensors
    longest = max(each.rank for each in tensors)
    full = [to.op("Concat", [1] * (longest - each.rank), to.sizes(each), axis=0) for each in tensors]
    common = to.op("Max", *full)
    return [to.op("Expand", each, common) for each in tensors]


@writes(expand.Repeat, expand.Tile, dynamic=("sizes", "dims"))
def repeat(to: Writer, layer: Any, input: Value) -> Value:
    counts = layer.sizes if isinstance(layer, expand.Repeat) else layer.dims
    (length,) = to.known(counts.shape, "the number of repetitions") if isinstance(counts, Value) else (len(counts),)
    items = [counts] if isinstance(counts, Value) else counts
    missing = length - input.rank
    vector = to.op("Concat", [1] * -missing, to.vector(items), axis=0) if missing < 0 else to.vector(items)
    return to.op("Tile", to.unsqueeze(input, *range(missing)), vector)


@writes(expand.RepeatInterleave, dynamic=("output_size",))
def repeat_interleave(to: Writer, layer: expand.RepeatInterleave, input: Value, repeats: Operand) -> Value:
    is_flat = layer.dim is None or input.rank == 0
    axis = 0 if layer.dim is None or is_flat else checked_axis(layer.dim, input.rank)
    x = to.reshape(input, (-1,)) if is_flat else input
    counts = to.tensor(repeats, INT64)
    if counts.constant is None or counts.constant.size != 1:
        return to.take(x, repetitions(to, None, counts), axis)
    times = [int(counts.constant.item()) if k == axis + 1 else 1 for k in range(x.rank + 1)]
    sizes = [-1 if k == axis else to.size(x, k) for k in range(x.rank)]
    return to.op("Reshape", to.op("Tile", to.unsqueeze(x, axis + 1), times), to.vector(sizes))


@writes(expand.Repetitions)
def repetitions(to: Writer, layer: object, repeats: Value) -> Value:
    """Write i repeated repeats[i] times: the number of ends that are not beyond a place."""
    counts = to.cast(repeats, INT64)
    ends = to.op("CumSum", counts, to.constant(0, INT64))
    places = to.op("Unsqueeze", to.counting(to.op("ReduceSum", counts, keepdims=0)), [1])
    return to.op("ReduceSum", to.cast(ends <= places, INT64), [1], keepdims=0, shape=(None,))
