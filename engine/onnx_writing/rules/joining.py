"""Tensors put together and taken apart."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import accumulate
from typing import Any

from engine.layers.operands.axes import checked_axis
from engine.layers.shape import join, split
from engine.layers.shape.shape import AtLeast
from engine.onnx_writing.registry import writes
from engine.onnx_writing.value import Operand, Value, holds_value
from engine.onnx_writing.writer import INT64, Writer
from engine.promotion import promote_types
from engine.tensor import scalar_tensor


def _items(to: Writer, tensors: Sequence[Operand], number_rank: int = 0) -> list[Value]:
    """Return tensors, given one by one or as a list, in their common dtype."""
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], list | tuple) else tensors
    values = [each if isinstance(each, Value) else to.tensor(scalar_tensor(each)) for each in given]
    dtype = reduce(promote_types, [each.dtype for each in values])
    values = [to.cast(each, dtype) for each in values]
    is_number = [not isinstance(each, Value) or each.is_number for each in given]
    return [
        to.reshape(each, (1,) * number_rank) if number else each for each, number in zip(values, is_number, strict=True)
    ]


@writes(join.Cat)
def cat(to: Writer, layer: join.Cat, *tensors: Operand) -> Value:
    values = _items(to, tensors, 1)
    kept = [each for each in values if each.shape != (0,)] or values[:1]
    axis = checked_axis(layer.dim, kept[0].rank)
    return kept[0] if len(kept) == 1 else to.op("Concat", *kept, axis=axis)


@writes(join.Stack)
def stack(to: Writer, layer: join.Stack, *tensors: Operand) -> Value:
    values = _items(to, tensors)
    axis = checked_axis(layer.dim, values[0].rank + 1)
    parts = [to.unsqueeze(each, axis) for each in values]
    return parts[0] if len(parts) == 1 else to.op("Concat", *parts, axis=axis)


@writes(join.StackedRows)
def stacked_rows(to: Writer, layer: join.StackedRows, *tensors: Operand) -> Value:
    raised = [to.apply(AtLeast(rank=layer.rank), each) for each in _items(to, tensors)]
    return cat(to, layer._cat(raised[0].rank), *raised)


@writes(join.ColumnStack)
def column_stack(to: Writer, layer: join.ColumnStack, *tensors: Operand) -> Value:
    columns = [to.apply(join._as_columns(each.rank), each) for each in _items(to, tensors)]
    return cat(to, join.Cat(dim=1), *columns)


@writes(join.CartesianProduct)
def cartesian_product(to: Writer, layer: join.CartesianProduct, *tensors: Operand) -> Value:
    vectors = _items(to, tensors)
    if len(vectors) == 1:
        return vectors[0]
    columns = [to.op("Reshape", each, to.constant([-1, 1], INT64)) for each in grid(to, vectors)]
    return to.op("Concat", *columns, axis=1)


def grid(to: Writer, vectors: Sequence[Value]) -> list[Value]:
    """Return vectors expanded to a common grid, each along an axis of its own."""
    sizes = to.vector([to.size(each, 0) for each in vectors])
    count = len(vectors)
    placed = [
        to.op("Reshape", each, to.constant([-1 if k == axis else 1 for k in range(count)], INT64))
        for axis, each in enumerate(vectors)
    ]
    return [to.op("Expand", each, sizes) for each in placed]


@writes(join.BlockDiagonal)
def block_diagonal(to: Writer, layer: join.BlockDiagonal, *tensors: Operand) -> Value:
    blocks = [to.reshape(each, join._matrix(each.shape)) for each in _items(to, tensors)]
    widths = to.known([each.shape[1] for each in blocks], "the width of a block")
    rows = []
    for each, start in zip(blocks, accumulate((0, *widths[:-1])), strict=True):
        amounts = [0, start, 0, sum(widths) - start - (each.shape[1] or 0)]
        rows.append(to.op("Pad", each, to.constant(amounts, INT64)))
    return to.op("Concat", *rows, axis=0)


@writes(join.PadSequence)
def pad_sequence(to: Writer, layer: join.PadSequence, sequences: Sequence[Value]) -> Value:
    lengths = to.known([each.shape[0] for each in sequences], "the length of a sequence")
    axis = 0 if layer.batch_first else 1
    parts = []
    for each, length in zip(sequences, lengths, strict=True):
        missing, rest = max(lengths) - length, [0] * (each.rank - 1)
        ends = (missing, 0) if layer.padding_side == "left" else (0, missing)
        amounts = to.constant([ends[0], *rest, ends[1], *rest], INT64)
        padded = to.op("Pad", each, amounts, to.constant(layer.padding_value, each.dtype), shape=(None,) * each.rank)
        parts.append(to.unsqueeze(padded, axis))
    return to.op("Concat", *parts, axis=axis)


# Pieces


@writes(split.Split, dynamic=("split_size_or_sections",))
def split_(to: Writer, layer: split.Split, input: Value) -> Any:
    sections = layer.split_size_or_sections
    if not holds_value(sections):
        return _pieces(to, layer, input)
    if isinstance(sections, Value):
        to.refuse("the sizes of the pieces are a tensor that only a run decides")
    axis = checked_axis(layer.dim or 0, input.rank)
    assert isinstance(sections, tuple)  # of numbers and tensors
    return layer._arranged(_split(to, input, axis, to.vector(list(sections)), len(sections)))


@writes(split.Chunk, split.TensorSplit)
def pieces(to: Writer, layer: Any, input: Value) -> Any:
    return _pieces(to, layer, input)


@writes(split.AxisSplit)
def axis_split(to: Writer, layer: split.AxisSplit, input: Value) -> Any:
    return _pieces(to, layer._split(input.shape), input)


def _pieces(to: Writer, layer: Any, input: Value) -> Any:
    axis = checked_axis(layer.dim or 0, input.rank)
    length = input.shape[axis]
    lengths = layer._lengths(length)
    if lengths is None:
        to.refuse("the number of pieces depends on a dynamic size", "export the model with fixed sizes")
    if None not in lengths:
        starts = list(layer._starts(lengths, length))
        if starts == [0, *accumulate(lengths)][:-1] and len(starts) > 1:
            return layer._arranged(_split(to, input, axis, to.constant(list(lengths), INT64), len(lengths)))
        spans = zip(starts, lengths, strict=True)
        return layer._arranged([to.slice(input, axis, start, start + size) for start, size in spans])
    if isinstance(layer, split.Split) and all(size is not None for size in lengths[:-1]):
        known = sum(size for size in lengths[:-1])
        last = to.op("Sub", to.sizes(input, axis, axis + 1), to.constant([known], INT64), shape=(1,))
        sizes = to.op("Concat", to.constant(list(lengths[:-1]), INT64), last, axis=0)
        return layer._arranged(_split(to, input, axis, sizes, len(lengths)))
    if isinstance(layer, split.Chunk | split.Split):
        made = to.ops("Split", [input], [input.dtype] * len(lengths), axis=axis, num_outputs=len(lengths))
        return layer._arranged(made)
    to.refuse("the sizes of the pieces depend on a dynamic size", "export the model with fixed sizes")


def _split(to: Writer, input: Value, axis: int, sizes: Value, count: int) -> list[Value]:
    return to.ops("Split", [input, sizes], [input.dtype] * count, axis=axis)


@writes(split.Unbind)
def unbind(to: Writer, layer: split.Unbind, input: Value) -> Any:
    axis = checked_axis(layer.dim, input.rank)
    count = input.shape[axis]
    count = len(layer.annotations.outputs) if count is None and not layer._gives_list else count
    (known,) = to.known((count,), "the number of slices")
    places = [to.constant(k, INT64) for k in range(known)]
    return layer._arranged([to.op("Gather", input, each, axis=axis) for each in places])
