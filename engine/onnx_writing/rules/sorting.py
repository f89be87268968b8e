"""Sorting, and the largest or smallest few."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from engine.layers.operands.axes import checked_axis
from engine.layers.sorting import order_statistics, searching, sorting
from engine.onnx_writing.registry import writes
from engine.onnx_writing.value import Operand, Value
from engine.onnx_writing.writer import BOOL, INT32, INT64, Writer


def _top(to: Writer, x: Value, dim: int, k: Any, *, largest: bool, sorted: bool = True) -> list[Value]:
    """Write the first k elements in order along an axis, and their places; all elements if k is None."""
    if x.rank == 0:
        return [x, to.constant(0, INT64)]
    axis = checked_axis(dim, x.rank)
    count = to.sizes(x, axis, axis + 1) if k is None else to.vector(k)
    return to.ops(
        "TopK", [x, count], [None, INT64], axis=axis, largest=int(largest), sorted=int(sorted)
    )  # fmt: skip


@writes(sorting.Sort)
def sort(to: Writer, layer: sorting.Sort, input: Value) -> Any:
    return layer.arranged(*_top(to, input, layer.dim, None, largest=layer.descending))


@writes(sorting.ArgSort)
def arg_sort(to: Writer, layer: sorting.ArgSort, input: Value) -> Value:
    return _top(to, input, layer.dim, None, largest=layer.descending)[1]


@writes(sorting.TopK, dynamic=("k",))
def top_k(to: Writer, layer: sorting.TopK, input: Value) -> Any:
    return layer.arranged(*_top(to, input, layer.dim, layer.k, largest=layer.largest, sorted=layer.sorted))


@writes(sorting.KthValue)
def kth_value(to: Writer, layer: sorting.KthValue, input: Value) -> Any:
    return tuple(_kth(to, input, layer.dim, layer.k, layer.keepdim))


def _kth(to: Writer, x: Value, dim: int, k: int, keepdim: bool) -> list[Value]:
    """Write the k-th smallest element along an axis, and its place."""
    found = _top(to, x, dim, [k], largest=False)
    place: Any = [k - 1] if keepdim else k - 1
    return [to.take(each, place, checked_axis(dim, x.rank)) for each in found] if x.rank else found


@writes(order_statistics.Median)
def median(to: Writer, layer: order_statistics.Median, input: Value) -> Any:
    if input.dtype.kind == "f" and layer.ignores_nan:
        to.refuse("a median that leaves out NaN has no counterpart in ONNX")
    if input.rank == 0:
        return input if layer.dim is None else (input, to.constant(0, INT64))
    x, dim, keepdim = input, layer.dim, layer.keepdim
    if dim is None:
        x, dim = to.reshape(input, (math.prod(to.known(input.shape, "the number of elements")),)), 0
    axis = checked_axis(dim, x.rank)
    (length,) = to.known((x.shape[axis],), "the number of elements")
    values, places = _kth(to, x, axis, (length - 1) // 2 + 1, keepdim)
    if input.dtype.kind == "f":  # the first NaN, if there is one
        missing = to.cast(to.op("IsNaN", x), INT32)
        has_nan = to.cast(to.reduce("ReduceMax", missing, [axis], keepdim), BOOL)
        values = to.where(has_nan, np.nan, values)
        places = to.where(has_nan, to.op("ArgMax", missing, axis=axis, keepdims=int(keepdim)), places)
    return values if layer.dim is None else (values, places)


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
    column = to.op("Unsqueeze", x, [-1])
    table = table if table.rank == 1 else to.op("Unsqueeze", table, [-2])
    after = table > column if is_right else table >= column
    return to.cast(_count(to, ~after), INT32 if is_narrow else INT64)  # NaN comes after all


def _count(to: Writer, hits: Value) -> Value:
    return to.op("ReduceSum", to.cast(hits, INT64), [-1], keepdims=0)


@writes(searching.IsIn)
def is_in(to: Writer, layer: searching.IsIn, elements: Operand, test_elements: Operand) -> Value:
    (x, others), _ = to.common(elements, test_elements)
    count = _count(to, to.op("Equal", to.op("Unsqueeze", x, [-1]), to.reshape(others, (-1,))))
    return to.op("Equal", count, 0) if layer.invert else count > 0
