"""Sorting, and the largest or smallest few."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.layers.operands.axes import checked_axis
from engine.layers.sorting import order_statistics, searching, sorting
from engine.onnx_writing.registry import writes
from engine.onnx_writing.rules.reduction import reduced
from engine.onnx_writing.value import Operand, Value
from engine.onnx_writing.writer import BOOL, INT32, INT64, Writer


def _sortable(to: Writer, x: Value) -> Value:
    """Return a value in a dtype for which runtimes have a TopK."""
    if x.dtype.kind == "f" or x.dtype in (INT64, INT32):
        return x
    return to.cast(x, INT64)


def top(to: Writer, x: Value, k: Value, axis: int, *, largest: bool, sorted: bool = True) -> tuple[Value, Value]:
    """Write the first elements in order along an axis, and their places."""
    values, places = to.ops(
        "TopK", [_sortable(to, x), k], [_sortable(to, x).dtype, INT64],
        axis=axis, largest=int(largest), sorted=int(sorted),
    )  # fmt: skip
    return to.cast(values, x.dtype), places


def ordered(to: Writer, x: Value, dim: int, *, descending: bool) -> tuple[Value, Value]:
    """Write all elements in order along an axis, and their places."""
    if x.rank == 0:
        return x, to.constant(0, INT64)
    axis = checked_axis(dim, x.rank)
    return top(to, x, to.sizes(x, axis, axis + 1), axis, largest=descending)


@writes(sorting.Sort)
def sort(to: Writer, layer: sorting.Sort, input: Value) -> Any:
    return layer._arranged(*ordered(to, input, layer.dim, descending=layer.descending))


@writes(sorting.ArgSort)
def arg_sort(to: Writer, layer: sorting.ArgSort, input: Value) -> Value:
    return ordered(to, input, layer.dim, descending=layer.descending)[1]


@writes(sorting.TopK, dynamic=("k",))
def top_k(to: Writer, layer: sorting.TopK, input: Value) -> Any:
    if input.rank == 0:
        return layer._arranged(input, to.constant(0, INT64))
    axis = checked_axis(layer.dim, input.rank)
    k = layer.k
    values = top(to, input, to.vector(k), axis, largest=layer.largest, sorted=layer.sorted)
    return layer._arranged(*values)


@writes(sorting.KthValue)
def kth_value(to: Writer, layer: sorting.KthValue, input: Value) -> Any:
    if input.rank == 0:
        return input, to.constant(0, INT64)
    axis = checked_axis(layer.dim, input.rank)
    found = top(to, input, to.constant([layer.k], INT64), axis, largest=False)
    return tuple(_one(to, each, axis, layer.k - 1, layer.keepdim) for each in found)


def _one(to: Writer, x: Value, axis: int, place: int, keepdim: bool) -> Value:
    index = to.constant([place] if keepdim else place, INT64)
    return to.op("Gather", x, index, axis=axis)


@writes(order_statistics.Median)
def median(to: Writer, layer: order_statistics.Median, input: Value) -> Any:
    if input.dtype.kind == "f" and layer.ignores_nan:
        to.refuse("a median that leaves out NaN has no counterpart in ONNX")
    if input.rank == 0:
        return input if layer.dim is None else (input, to.constant(0, INT64))
    x = input if layer.dim is not None else to.reshape(input, (-1,))
    x = x if layer.dim is not None else _flat(to, input)
    axis = checked_axis(-1 if layer.dim is None else layer.dim, x.rank)
    (length,) = to.known((x.shape[axis],), "the number of elements")
    place = (length - 1) // 2
    found = top(to, x, to.constant([place + 1], INT64), axis, largest=False)
    values, places = (_one(to, each, axis, place, layer.keepdim) for each in found)
    if input.dtype.kind == "f":
        values, places = _nan_first(to, x, axis, values, places, keepdim=layer.keepdim)
    return values if layer.dim is None else (values, places)


def _flat(to: Writer, input: Value) -> Value:
    from math import prod

    return to.reshape(input, (prod(to.known(input.shape, "the number of elements")),))


def _nan_first(to: Writer, x: Value, axis: int, values: Value, places: Value, *, keepdim: bool) -> tuple[Value, Value]:
    """Return the place of the first NaN where there is one."""
    missing = to.op("Cast", to.op("IsNaN", x, dtype=BOOL), dtype=INT32, to=to.code(INT32), shape=x.shape)
    has = to.op("Cast", reduced(to, "ReduceMax", missing, [axis], keepdim), dtype=BOOL, to=to.code(BOOL))
    first = to.op("ArgMax", missing, axis=axis, keepdims=int(keepdim), dtype=INT64)
    nan = to.constant(np.nan, x.dtype)
    return (
        to.where(has, nan, values),
        to.where(has, first, places),
    )


# Searching


@writes(searching.SearchSorted)
def search_sorted(
    to: Writer, layer: searching.SearchSorted, sorted_sequence: Value, values: Operand, sorter: Value | None = None
) -> Value:
    rows = sorted_sequence
    if sorter is not None:
        rows = to.op("GatherElements", rows, to.cast(sorter, INT64), axis=-1, shape=rows.shape)
    return _before(to, rows, values, layer.right or layer.side == "right", layer.out_int32)


@writes(searching.Bucketize)
def bucketize(to: Writer, layer: searching.Bucketize, input: Operand, boundaries: Value) -> Value:
    return _before(to, boundaries, input, layer.right, layer.out_int32)


def _before(to: Writer, rows: Value, values: Operand, is_right: bool, is_narrow: bool) -> Value:
    """Write the number of elements of a sorted row before each value, by comparing each with all."""
    (x, table), _ = to.common(values, rows)
    column = to.op("Unsqueeze", x, to.constant([-1], INT64))
    table = table if table.rank == 1 else to.op("Unsqueeze", table, to.constant([-2], INT64))
    after = to.op("Greater" if is_right else "GreaterOrEqual", table, column, dtype=BOOL)
    count = to.op("Cast", to.op("Not", after), dtype=INT64, to=to.code(INT64))  # NaN comes after all
    total = to.op("ReduceSum", count, to.constant([-1], INT64), keepdims=0)
    return to.cast(total, INT32) if is_narrow else total


@writes(searching.IsIn)
def is_in(to: Writer, layer: searching.IsIn, elements: Operand, test_elements: Operand) -> Value:
    (x, others), _ = to.common(elements, test_elements)
    row = to.reshape(others, (-1,))
    equal = to.op("Equal", to.op("Unsqueeze", x, to.constant([-1], INT64)), row, dtype=BOOL)
    count = to.op("Cast", equal, dtype=INT64, to=to.code(INT64))
    total = to.op("ReduceSum", count, to.constant([-1], INT64), keepdims=0)
    found = to.op("Equal" if layer.invert else "Greater", total, to.constant(0, INT64), dtype=BOOL)
    return found
