"""Reductions over axes, extremes and running sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.layers.operands.axes import checked_axis
from engine.layers.reduction import deviation, extremum, reduction, scan
from engine.layers.shape.join import Cat
from engine.onnx_writing.registry import writes
from engine.onnx_writing.rules.elementwise import truth
from engine.onnx_writing.rules.functions import compare, number, truncated_quotient, where
from engine.onnx_writing.rules.shape import flipped
from engine.onnx_writing.value import Value
from engine.onnx_writing.writer import BOOL, FLOAT64, INT32, INT64, Writer
from engine.tensor import DType


def reduced(to: Writer, type: str, x: Value, axes: Sequence[int], keepdim: bool) -> Value:
    """Write a reduction of ONNX; a tensor without dimensions counts as a vector of one element."""
    if x.sizes == ():
        return to.reshape(to.op(type, to.reshape(x, (1,)), to.constant([0], INT64), keepdims=1), ())
    return to.op(type, x, to.constant(list(axes), INT64), keepdims=int(keepdim))


def _operand(layer: reduction.Reduction, to: Writer, input: Value) -> tuple[Value, tuple[int, ...], DType]:
    """Return the input in the dtype it is reduced in, the axes, and the dtype of the result."""
    result = layer._result_dtype(input.dtype)
    if result.kind == "c" or input.dtype.kind == "c":
        to.refuse("ONNX has no arithmetic of complex numbers")
    return to.cast(input, result), layer.axes(input.rank), result


def _plain(type: str) -> Callable[[Writer, Any, Value], Value]:
    def write(to: Writer, layer: Any, input: Value) -> Value:
        x, axes, dtype = _operand(layer, to, input)
        if not axes:
            return x
        wide = INT32 if dtype.kind in "iu" and dtype.itemsize < 4 else dtype
        return to.cast(reduced(to, type, to.cast(x, wide), axes, layer.keepdim), dtype)

    return write


writes(reduction.Sum)(_plain("ReduceSum"))
writes(reduction.Prod)(_plain("ReduceProd"))
writes(reduction.LogSumExp)(_plain("ReduceLogSumExp"))


@writes(reduction.Mean)
def mean(to: Writer, layer: reduction.Mean, input: Value) -> Value:
    x, axes, dtype = _operand(layer, to, input)
    if not axes:
        return x
    if dtype.kind == "f":
        return reduced(to, "ReduceMean", x, axes, layer.keepdim)
    total = reduced(to, "ReduceSum", to.cast(x, INT64), axes, layer.keepdim)
    return to.cast(truncated_quotient(to, total, _count(to, input, axes, INT64)), dtype)


def _count(to: Writer, input: Value, axes: Sequence[int], dtype: DType) -> Value:
    """Return the number of elements along axes as a scalar."""
    sizes = [input.shape[axis] if input.rank else 1 for axis in axes]
    if None not in sizes:
        return to.constant(math.prod(size or 0 for size in sizes), dtype)
    lengths = to.vector([to.size(input, axis) for axis in axes])
    return to.cast(to.op("ReduceProd", lengths, keepdims=0, shape=()), dtype)


@writes(reduction.NonZeroTest)
def nonzero_test(to: Writer, layer: reduction.NonZeroTest, input: Value) -> Value:
    hits, axes = truth(to, input), layer.axes(input.rank)
    if layer.mode == "all":
        hits = to.op("Not", hits)
    count = to.op("Cast", hits, dtype=INT64, to=to.code(INT64), shape=input.shape)
    count = reduced(to, "ReduceSum", count, axes, layer.keepdim) if axes else count
    if layer.mode == "count":
        return to.cast(count, layer._result_dtype(input.dtype))
    answer = compare(to, "Greater" if layer.mode == "any" else "Equal", count, 0)
    return to.cast(answer, layer._result_dtype(input.dtype))


@writes(deviation.Spread)
def spread(to: Writer, layer: deviation.Spread, input: Value) -> Value:
    x, axes, dtype = _operand(layer, to, input)
    if not axes:
        to.refuse("the deviation of no axis")
    centred = to.op("Sub", x, reduced(to, "ReduceMean", x, axes, True), shape=input.shape)
    square = to.op("Mul", centred, centred, shape=input.shape)
    total = reduced(to, "ReduceSum", square, axes, layer.keepdim)
    given = layer.unbiased if layer.correction is None else layer.correction
    less = 1.0 if given is None else float(given)
    count = to.op("Sub", _count(to, input, axes, dtype), number(to, less, x))
    variance = to.op("Div", total, to.op("Max", count, number(to, 0, x)))
    return to.op("Sqrt", variance) if layer.takes_root else variance


@writes(deviation.Norm)
def norm(to: Writer, layer: deviation.Norm, input: Value) -> Value:
    x, axes, dtype = _operand(layer, to, input)
    p = 2.0 if layer.p is None or layer.p == "fro" else float(layer.p)
    size = to.op("Abs", x, shape=input.shape)
    if not axes:
        return size
    if p in (1.0, 2.0):
        return reduced(to, f"ReduceL{int(p)}", x, axes, layer.keepdim)
    if math.isinf(p):
        return reduced(to, "ReduceMax" if p > 0 else "ReduceMin", size, axes, layer.keepdim)
    if p == 0:
        hits = to.cast(to.op("Cast", x, dtype=BOOL, to=to.code(BOOL), shape=input.shape), dtype)
        return reduced(to, "ReduceSum", hits, axes, layer.keepdim)
    powers = to.op("Pow", size, number(to, p, x), shape=input.shape)
    return to.op("Pow", reduced(to, "ReduceSum", powers, axes, layer.keepdim), number(to, 1 / p, x))


# Extremes


@writes(extremum.Extreme)
def extreme(to: Writer, layer: extremum.Extreme, input: Value) -> Value:
    axes = layer.axes(input.rank)
    return _extreme(to, to.cast(input, layer._result_dtype(input.dtype)), axes, layer.is_largest, layer.keepdim)


def _extreme(to: Writer, x: Value, axes: Sequence[int], is_largest: bool, keepdim: bool) -> Value:
    if not axes:
        return x
    small = x.dtype == BOOL or (x.dtype.kind in "iu" and x.dtype.itemsize < 4)
    wide = to.cast(x, INT32) if small else x
    return to.cast(reduced(to, "ReduceMax" if is_largest else "ReduceMin", wide, axes, keepdim), x.dtype)


@writes(extremum.ArgExtreme)
def arg_extreme(to: Writer, layer: extremum.ArgExtreme, input: Value) -> Value:
    type, x = "ArgMax" if layer.is_largest else "ArgMin", _ordered(to, input)
    if layer.dim is None or input.rank == 0:
        place = to.op(type, to.reshape(x, (-1,)), axis=0, keepdims=0, dtype=INT64, shape=())
        return to.reshape(place, (1,) * input.rank) if layer.keepdim else place
    axis = checked_axis(layer.dim, input.rank)
    return to.op(type, x, axis=axis, keepdims=int(layer.keepdim), dtype=INT64)


def _ordered(to: Writer, x: Value) -> Value:
    """Return a value in a dtype for which runtimes compare elements."""
    if x.dtype.kind == "f" or x.dtype == INT32:
        return x
    return to.cast(x, FLOAT64 if x.dtype == INT64 else INT32)


@writes(extremum.ExtremeAndPlace)
def extreme_and_place(to: Writer, layer: extremum.ExtremeAndPlace, input: Value) -> Any:
    if layer._is_alone(input.shape):
        return input
    values = extreme(to, layer._values, input)
    if len(layer.annotations.outputs) != 2:
        return values
    return values, arg_extreme(to, layer._places, input)


# Along an axis


@writes(scan.Running)
def running(to: Writer, layer: scan.Running, input: Value) -> Value:
    dtype = layer._result_dtype(input.dtype)
    x = to.cast(input, dtype)
    if input.rank == 0:
        return x
    axis = checked_axis(layer.dim, input.rank)
    if layer.mode == "sum":
        wide = INT32 if dtype.kind in "iu" and dtype.itemsize < 4 else dtype
        made = to.op("CumSum", to.cast(x, wide), to.constant(axis, INT64), reverse=int(layer.reverse) or None,
                     exclusive=int(layer.exclusive) or None)  # fmt: skip
        return to.cast(made, dtype)
    if layer.exclusive:
        to.refuse("a running product without the element itself")
    x = flipped(to, x, [axis]) if layer.reverse else x
    made = prefixes(to, x, axis, 1, lambda each, last: reduced(to, "ReduceProd", each, [last], False))
    return flipped(to, made, [axis]) if layer.reverse else made


MOST_PREFIX = 2048


def prefixes(to: Writer, x: Value, axis: int, filler: float, reduce: Callable[[Value, int], Value]) -> Value:
    """Write a reduction of every prefix of an axis, from a table of all prefixes; others hold the filler."""
    (length,) = to.known((x.shape[axis],), "the length of the axis")
    if length > MOST_PREFIX:
        to.refuse(f"ONNX has no running reductions of this kind, and {length} elements are too many for a table")
    rank = x.rank
    order = [place for place in range(rank) if place != axis]
    rows = to.unsqueeze(to.transpose(x, [*order, axis]), rank - 1)  # (..., 1, length)
    later = to.constant(np.triu(np.ones((length, length), np.bool_), 1))
    table = where(to, later, filler, rows)
    sizes = (*(x.shape[place] for place in order), length, length)
    made = reduce(_sized(table, sizes), rank)
    back = sorted(range(rank), key=[*order, axis].__getitem__)
    return to.transpose(_sized(made, sizes[:-1]), back)


def _sized(value: Value, shape: Any) -> Value:
    from dataclasses import replace

    return replace(value, sizes=shape)


@writes(scan.LogCumSumExp)
def log_cum_sum_exp(to: Writer, layer: scan.LogCumSumExp, input: Value) -> Value:
    x = to.cast(input, layer._result_dtype(input.dtype))
    if input.rank == 0:
        return x
    axis = checked_axis(layer.dim, input.rank)
    return prefixes(to, x, axis, -math.inf, lambda each, last: reduced(to, "ReduceLogSumExp", each, [last], False))


@writes(scan.RunningExtreme)
def running_extreme(to: Writer, layer: scan.RunningExtreme, input: Value) -> Any:
    if input.rank == 0:
        return input, to.constant(0, INT64)
    axis = checked_axis(layer.dim, input.rank)
    x = _ordered(to, input)
    limits: Any = (-math.inf, math.inf) if x.dtype.kind == "f" else (np.iinfo(x.dtype).min, np.iinfo(x.dtype).max)
    low = limits[0] if layer.is_largest else limits[1]
    values = prefixes(to, x, axis, low, lambda each, last: _extreme(to, each, [last], layer.is_largest, False))
    reached = compare(to, "Equal", x, values)
    if x.dtype.kind == "f":
        reached = to.op("Or", reached, to.op("IsNaN", x, dtype=BOOL), shape=x.sizes)
    (length,) = to.known((input.shape[axis],), "the length of the axis")
    numbers = to.constant(np.arange(length).reshape(-1, *(1,) * (input.rank - 1 - axis)), INT64)
    places = to.where(reached, numbers, to.constant(0, INT64))
    latest = prefixes(to, places, axis, 0, lambda each, last: reduced(to, "ReduceMax", each, [last], False))
    return to.cast(values, input.dtype), latest


@writes(scan.Diff)
def diff(
    to: Writer, layer: scan.Diff, input: Value, prepend: Value | None = None, append: Value | None = None
) -> Value:
    axis = checked_axis(layer.dim, input.rank)
    parts = [each for each in (prepend, input, append) if each is not None]
    x: Value = to.apply(Cat(dim=axis), *parts)
    for _ in range(layer.n):
        later, earlier = to.slice(x, axis, 1, 2**63 - 1), to.slice(x, axis, 0, -1)
        x = to.op("Xor" if x.dtype == BOOL else "Sub", later, earlier, shape=later.sizes)
    return x
