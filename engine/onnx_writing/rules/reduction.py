"""Reductions over axes, extremes and running sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from engine.layers.operands.axes import checked_axis
from engine.layers.reduction import deviation, extremum, reduction, scan
from engine.layers.shape.join import Cat
from engine.onnx_writing.registry import writes
from engine.onnx_writing.rules.elementwise import truth
from engine.onnx_writing.rules.functions import truncated_quotient
from engine.onnx_writing.rules.shape import flipped
from engine.onnx_writing.value import Value
from engine.onnx_writing.writer import BOOL, END, INT64, Writer
from engine.tensor import DType


def _operand(layer: reduction.Reduction, to: Writer, input: Value) -> tuple[Value, tuple[int, ...]]:
    """Return the input in the dtype it is reduced in, and the axes."""
    return to.cast(input, layer.result_dtype(input.dtype)), layer.axes(input.rank)


@writes(reduction.Sum, reduction.Prod, reduction.LogSumExp)
def plain(to: Writer, layer: Any, input: Value) -> Value:
    x, axes = _operand(layer, to, input)
    return to.reduce(f"Reduce{type(layer).__name__}", x, axes, layer.keepdim) if axes else x


@writes(reduction.Mean)
def mean(to: Writer, layer: reduction.Mean, input: Value) -> Value:
    x, axes = _operand(layer, to, input)
    if not axes:
        return x
    if x.dtype.kind == "f":
        return to.reduce("ReduceMean", x, axes, layer.keepdim)
    total = to.reduce("ReduceSum", to.cast(x, INT64), axes, layer.keepdim)
    return to.cast(truncated_quotient(total, _count(to, input, axes, INT64)), x.dtype)


def _count(to: Writer, input: Value, axes: Sequence[int], dtype: DType) -> Value:
    """Return the number of elements along axes as a scalar."""
    sizes = [to.size(input, axis) if input.rank else 1 for axis in axes]
    if not any(isinstance(each, Value) for each in sizes):
        return to.constant(math.prod(sizes), dtype)
    return to.cast(to.op("ReduceProd", to.vector(sizes), keepdims=0, shape=()), dtype)


@writes(reduction.NonZeroTest)
def nonzero_test(to: Writer, layer: reduction.NonZeroTest, input: Value) -> Value:
    hits, axes = truth(input), layer.axes(input.rank)
    count = to.cast(~hits if layer.mode == "all" else hits, INT64)
    count = to.reduce("ReduceSum", count, axes, layer.keepdim) if axes else count
    if layer.mode != "count":
        count = count > 0 if layer.mode == "any" else to.op("Equal", count, 0)
    return to.cast(count, layer.result_dtype(input.dtype))


@writes(deviation.Spread)
def spread(to: Writer, layer: deviation.Spread, input: Value) -> Value:
    x, axes = _operand(layer, to, input)
    if not axes:
        to.refuse("the deviation of no axis")
    centred = x - to.reduce("ReduceMean", x, axes, True)
    given = layer.unbiased if layer.correction is None else layer.correction
    count = _count(to, input, axes, x.dtype) - (1.0 if given is None else float(given))
    variance = to.reduce("ReduceSum", centred * centred, axes, layer.keepdim) / to.op("Max", count, 0)
    return to.op("Sqrt", variance) if layer.takes_root else variance


@writes(deviation.Norm)
def norm(to: Writer, layer: deviation.Norm, input: Value) -> Value:
    x, axes = _operand(layer, to, input)
    p = 2.0 if layer.p is None or layer.p == "fro" else float(layer.p)
    size = to.op("Abs", x)
    if not axes:
        return size
    if p in (1.0, 2.0):
        return to.reduce(f"ReduceL{int(p)}", x, axes, layer.keepdim)
    if math.isinf(p):
        return to.reduce("ReduceMax" if p > 0 else "ReduceMin", size, axes, layer.keepdim)
    powers = to.op("Pow", size, p) if p else to.cast(truth(x), x.dtype)
    total = to.reduce("ReduceSum", powers, axes, layer.keepdim)
    return to.op("Pow", total, 1 / p) if p else total


# Extremes


@writes(extremum.Extreme)
def extreme(to: Writer, layer: extremum.Extreme, input: Value) -> Value:
    x, axes = _operand(layer, to, input)
    return to.reduce("ReduceMax" if layer.is_largest else "ReduceMin", x, axes, layer.keepdim) if axes else x


@writes(extremum.ArgExtreme)
def arg_extreme(to: Writer, layer: extremum.ArgExtreme, input: Value) -> Value:
    type = "ArgMax" if layer.is_largest else "ArgMin"
    if layer.dim is None or input.rank == 0:
        place = to.op(type, to.reshape(input, (-1,)), axis=0, keepdims=0, shape=())
        return to.reshape(place, (1,) * input.rank) if layer.keepdim else place
    return to.op(type, input, axis=checked_axis(layer.dim, input.rank), keepdims=int(layer.keepdim))


@writes(extremum.ExtremeAndPlace)
def extreme_and_place(to: Writer, layer: extremum.ExtremeAndPlace, input: Value) -> Any:
    if layer.is_alone(input.shape):
        return input
    values = extreme(to, layer.values, input)
    return values if len(layer.annotations.outputs) != 2 else (values, arg_extreme(to, layer.places, input))


# Along an axis


@writes(scan.Running)
def running(to: Writer, layer: scan.Running, input: Value) -> Value:
    x = to.cast(input, layer.result_dtype(input.dtype))
    if input.rank == 0:
        return x
    axis = checked_axis(layer.dim, input.rank)
    if layer.mode == "sum":
        return to.op("CumSum", x, to.constant(axis, INT64), reverse=int(layer.reverse) or None,
                     exclusive=int(layer.exclusive) or None)  # fmt: skip
    if layer.exclusive:
        to.refuse("a running product without the element itself")
    x = flipped(to, x, [axis]) if layer.reverse else x
    made = prefixes(to, x, axis, 1, "ReduceProd")
    return flipped(to, made, [axis]) if layer.reverse else made


MOST_PREFIX = 2048


def prefixes(to: Writer, x: Value, axis: int, filler: float, type: str) -> Value:
    """Write a reduction of every prefix of an axis, from a table of all prefixes; others hold the filler."""
    (length,) = to.known((x.shape[axis],), "the length of the axis")
    if length > MOST_PREFIX:
        to.refuse(f"ONNX has no running reductions of this kind, and {length} elements are too many for a table")
    rank = x.rank
    order = [*(place for place in range(rank) if place != axis), axis]
    rows = to.unsqueeze(to.transpose(x, order), rank - 1)  # (..., 1, length)
    later = to.constant(np.triu(np.ones((length, length), np.bool_), 1))
    made = to.reduce(type, to.where(later, filler, rows), [rank])
    return to.transpose(made, sorted(range(rank), key=order.__getitem__))


@writes(scan.LogCumSumExp)
def log_cum_sum_exp(to: Writer, layer: scan.LogCumSumExp, input: Value) -> Value:
    x = to.cast(input, layer.result_dtype(input.dtype))
    return prefixes(to, x, checked_axis(layer.dim, x.rank), -math.inf, "ReduceLogSumExp") if x.rank else x


@writes(scan.RunningExtreme)
def running_extreme(to: Writer, layer: scan.RunningExtreme, input: Value) -> Any:
    if input.rank == 0:
        return input, to.constant(0, INT64)
    axis = checked_axis(layer.dim, input.rank)
    dtype = input.dtype
    limits: Any = (-math.inf, math.inf) if dtype.kind == "f" else (0, 1) if dtype == BOOL else np.iinfo(dtype)
    low, high = (limits.min, limits.max) if isinstance(limits, np.iinfo) else limits
    values = prefixes(
        to, input, axis, low if layer.is_largest else high, "ReduceMax" if layer.is_largest else "ReduceMin"
    )
    reached = to.op("Equal", input, values)
    reached = reached | to.op("IsNaN", input) if dtype.kind == "f" else reached
    (length,) = to.known((input.shape[axis],), "the length of the axis")
    numbers = to.constant(np.arange(length).reshape(-1, *(1,) * (input.rank - 1 - axis)), INT64)
    return values, prefixes(to, to.where(reached, numbers, 0), axis, 0, "ReduceMax")


@writes(scan.Diff)
def diff(
    to: Writer, layer: scan.Diff, input: Value, prepend: Value | None = None, append: Value | None = None
) -> Value:
    axis = checked_axis(layer.dim, input.rank)
    x: Value = to.apply(Cat(dim=axis), *(each for each in (prepend, input, append) if each is not None))
    for _ in range(layer.n):
        later, earlier = to.slice(x, axis, 1, END), to.slice(x, axis, 0, -1)
        x = replace(to.op("Xor" if x.dtype == BOOL else "Sub", later, earlier), sizes=later.sizes)
    return x
