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
from engine.onnx_writing.writer import Writer
from engine.promotion import promote_types
from engine.tensor import scalar_tensor


def _items(to: Writer, tensors: Sequence[Operand], number_rank: int = 0) -> list[Value]:
    """Return tensors, given one by one or as a list, in their common dtype."""
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], list | tuple) else tensors
    values = [each if isinstance(each, Value) else to.tensor(scalar_tensor(each)) for each in given]
    dtype = reduce(promote_types, [each.dtype for each in values])
    are_numbers = [not isinstance(each, Value) or each.is_number for each in given]
    values = [to.cast(each, dtype) for each in values]
    return [to.reshape(each, (1,) * number_rank) if is_number else each
            for each, is_number in zip(values, are_numbers, strict=True)]  # fmt: skip


def _joined(to: Writer, values: Sequence[Value], axis: int) -> Value:
    return values[0] if len(values) == 1 else to.op("Concat", *values, axis=axis)


@writes(join.Cat)
def cat(to: Writer, layer: join.Cat, *tensors: Operand) -> Value:
    values = _items(to, tensors, 1)
    kept = [each for each in values if each.shape != (0,)] or values[:1]
    return _joined(to, kept, checked_axis(layer.dim, kept[0].rank))


@writes(join.Stack)
def stack(to: Writer, layer: join.Stack, *tensors: Operand) -> Value:
    values = _items(to, tensors)
    axis = checked_axis(layer.dim, values[0].rank + 1)
    return _joined(to, [to.unsqueeze(each, axis) for each in values], axis)


@writes(join.StackedRows)
def stacked_rows(to: Writer, layer: join.StackedRows, *tensors: Operand) -> Value:
    raised = [to.apply(AtLeast(rank=layer.rank), each) for each in _items(to, tensors)]
    return cat(to, join.Cat(dim=min(layer.dim, raised[0].rank - 1)), *raised)


@writes(join.ColumnStack)
def column_stack(to: Writer, layer: join.ColumnStack, *tensors: Operand) -> Value:
    columns = [to.unsqueeze(each, *range(each.rank, 2)) for each in _items(to, tensors)]
    return cat(to, join.Cat(dim=1), *columns)


@writes(join.CartesianProduct)
def cartesian_product(to: Writer, layer: join.CartesianProduct, *tensors: Operand) -> Value:
    vectors = _items(to, tensors)
    return (
        _joined(to, [to.op("Reshape", each, [-1, 1]) for each in grid(to, vectors)], 1) if vectors[1:] else vectors[0]
    )


def grid(to: Writer, vectors: Sequence[Value]) -> list[Value]:
    """Return vectors expanded to a common grid, each along an axis of its own."""
    sizes, count = to.vector([to.size(each, 0) for each in vectors]), len(vectors)
    placed = [
        to.op("Reshape", each, [-1 if k == axis else 1 for k in range(count)]) for axis, each in enumerate(vectors)
    ]
    return [to.op("Expand", each, sizes) for each in placed]


@writes(join.BlockDiagonal)
def block_diagonal(to: Writer, layer: join.BlockDiagonal, *tensors: Operand) -> Value:
    blocks = [to.apply(AtLeast(rank=2), each) for each in _items(to, tensors)]
    widths = to.known([each.shape[1] for each in blocks], "the width of a block")
    pairs = zip(blocks, widths, accumulate((0, *widths[:-1])), strict=True)
    rows = [to.op("Pad", each, [0, start, 0, sum(widths) - start - width]) for each, width, start in pairs]
    return to.op("Concat", *rows, axis=0)


@writes(join.PadSequence)
def pad_sequence(to: Writer, layer: join.PadSequence, sequences: Sequence[Value]) -> Value:
    lengths = to.known([each.shape[0] for each in sequences], "the length of a sequence")
    axis, parts = 0 if layer.batch_first else 1, []
    for each, length in zip(sequences, lengths, strict=True):
        missing, rest = max(lengths) - length, [0] * (each.rank - 1)
        before, after = (missing, 0) if layer.padding_side == "left" else (0, missing)
        filler = to.constant(layer.padding_value, each.dtype)
        padded = to.op("Pad", each, [before, *rest, after, *rest], filler, shape=(None,) * each.rank)
        parts.append(to.unsqueeze(padded, axis))
    return to.op("Concat", *parts, axis=axis)


# Pieces


@writes(split.Split, dynamic=("split_size_or_sections",))
def split_(to: Writer, layer: split.Split, input: Value) -> Any:
    sections: Any = layer.split_size_or_sections
    if not holds_value(sections):
        return pieces(to, layer, input)
    if isinstance(sections, Value):
        to.refuse("the sizes of the pieces are a tensor that only a run decides")
    axis = checked_axis(layer.dim or 0, input.rank)
    return layer.arranged(_split(to, input, axis, to.vector(list(sections)), len(sections)))


@writes(split.AxisSplit)
def axis_split(to: Writer, layer: split.AxisSplit, input: Value) -> Any:
    return pieces(to, layer.split(input.shape), input)


@writes(split.Chunk, split.TensorSplit)
def pieces(to: Writer, layer: Any, input: Value) -> Any:
    axis = checked_axis(layer.dim or 0, input.rank)
    length = input.shape[axis]
    lengths = layer.lengths(length)
    if lengths is None:
        to.refuse("the number of pieces depends on a dynamic size", "export the model with fixed sizes")
    count = len(lengths)
    if None not in lengths:
        starts = list(layer.starts(lengths, length))
        if starts == [0, *accumulate(lengths)][:-1] and count > 1:
            return layer.arranged(_split(to, input, axis, to.vector(list(lengths)), count))
        spans = zip(starts, lengths, strict=True)
        return layer.arranged([to.slice(input, axis, start, start + size) for start, size in spans])
    if isinstance(layer, split.Split) and None not in lengths[:-1]:
        last = to.op("Sub", to.sizes(input, axis, axis + 1), to.vector([sum(lengths[:-1])]))
        return layer.arranged(_split(to, input, axis, to.vector([*lengths[:-1], last]), count))
    if isinstance(layer, split.Chunk | split.Split):
        return layer.arranged(to.ops("Split", [input], [None] * count, axis=axis, num_outputs=count))
    to.refuse("the sizes of the pieces depend on a dynamic size", "export the model with fixed sizes")


def _split(to: Writer, input: Value, axis: int, sizes: Value, count: int) -> list[Value]:
    return to.ops("Split", [input, sizes], [None] * count, axis=axis)


@writes(split.Unbind)
def unbind(to: Writer, layer: split.Unbind, input: Value) -> Any:
    axis = checked_axis(layer.dim, input.rank)
    count = input.shape[axis]
    count = len(layer.annotations.outputs) if count is None and not layer.gives_list else count
    (known,) = to.known((count,), "the number of slices")
    return layer.arranged([to.take(input, k, axis) for k in range(known)])
