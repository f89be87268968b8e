"""Reductions of vectors by sum or maximum: lane by lane, across lanes, or along a row."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import TypeAlias

from engine.compiler.codegen.ir import (
    Function,
    Index,
    Value,
    as_value,
    constant,
    element_of,
    is_dynamic,
    lanes_of,
    vector,
)

Fold: TypeAlias = Callable[[Function, Sequence[Value]], Value]

# Independent accumulators of a row, to hide the latency of an addition.
SIDE_BY_SIDE = 4


def total(f: Function, values: Sequence[Value]) -> Value:
    """Emit the sum as a balanced tree."""
    values = list(values)
    while len(values) > 1:
        pairs = [f.fadd(a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
        values = pairs + values[2 * len(pairs) :]
    return values[0]


def largest(f: Function, values: Sequence[Value]) -> Value:
    """Emit the maximum; NaN if any value is NaN.

    x86's maximum returns its second operand if one is NaN, so a NaN in the last value survives by itself. The others
    are tested two at a time.
    """
    *others, _ = values
    result = largest_number(f, values)
    if not others:
        return result
    pairs = [others[k : k + 2] for k in range(0, len(others), 2)]
    masks = [f.compare("uno", pair[0], pair[-1]) for pair in pairs]
    is_nan = reduce(lambda a, b: f.binary("or", a, b), masks)
    return f.select(is_nan, constant(math.nan, result.type), result)


def largest_number(f: Function, values: Sequence[Value]) -> Value:
    """Emit the maximum; whether a NaN propagates is unspecified."""
    return reduce(lambda a, b: f.select(f.compare("ogt", a, b), a, b), values)


def fold_lanes(f: Function, value: Value, fold: Fold) -> Value:
    """Reduce the lanes of a vector to a scalar by halving it repeatedly."""
    lanes, element = lanes_of(value.type), element_of(value.type)
    if lanes == 1:
        return value
    half = lanes // 2
    if half == 1:
        return fold(f, [f.op(element, f"extractelement {value.type} {value.text}, i64 {lane}") for lane in (0, 1)])
    nothing = Value("poison", value.type)
    parts = [f.shuffle(value, nothing, range(first, first + half)) for first in (0, half)]
    return fold_lanes(f, fold(f, parts), fold)


def walk_row(
    f: Function,
    columns: int,
    lanes: int,
    carry: Sequence[Value],
    step: Callable[[Index, int, Value], Value],
    *,
    unrolled: int = SIDE_BY_SIDE,
) -> list[Value]:
    """Emit ``step(column, count, carried)`` for every vector of a row, rotating through the carried values.

    ``carry`` has SIDE_BY_SIDE values; ``count`` is the number of valid lanes, fewer in the last vector. A row of up to
    ``unrolled`` vectors is unrolled completely, with constant columns. In a row of dynamic length ``count`` is read
    at run time.
    """
    if is_dynamic(columns):
        return _walk_dynamic(f, columns, lanes, carry, step)
    carried, stride = list(carry), SIDE_BY_SIDE * lanes
    main = columns // stride * stride if columns > unrolled * lanes else 0
    if main:
        with f.loop(0, main, stride, carry=carried) as loop:
            positions = [f.add(loop.index, k * lanes) for k in range(SIDE_BY_SIDE)]
            loop.carry([step(position, lanes, each) for position, each in zip(positions, loop.carried, strict=True)])
        carried = loop.results
    for k, column in enumerate(range(main, columns, lanes)):
        accumulator = k % SIDE_BY_SIDE
        carried[accumulator] = step(column, min(lanes, columns - column), carried[accumulator])
    return carried


def _walk_dynamic(
    f: Function, columns: int, lanes: int, carry: Sequence[Value], step: Callable[[Index, int, Value], Value]
) -> list[Value]:
    carried, stride = list(carry), SIDE_BY_SIDE * lanes
    main, whole = columns // stride * stride, columns // lanes * lanes
    with f.loop(0, main, stride, carry=carried) as loop:
        positions = [f.add(loop.index, k * lanes) for k in range(SIDE_BY_SIDE)]
        loop.carry([step(position, lanes, each) for position, each in zip(positions, loop.carried, strict=True)])
    first, *others = loop.results
    for begin, end, count in ((main, whole, lanes), (whole, columns, columns - whole)):
        with f.loop(begin, end, lanes, carry=[first]) as loop:
            loop.carry([step(loop.index, count, loop.carried[0])])
        (first,) = loop.results
    return [first, *others]


def number_of(f: Function, count: int, type_: str = "float") -> Value:
    """Return a count, which may be dynamic, as a floating-point value."""
    return f.convert("sitofp", as_value(count), type_) if is_dynamic(count) else constant(float(count), type_)


def load_or(f: Function, address: Value, lanes: int, count: int, other: float) -> Value:
    """Load ``count`` lanes and fill the others with a number."""
    type_ = vector(lanes)
    value = f.load_lanes(type_, address, count)
    is_whole = not is_dynamic(count) and count == lanes
    return value if is_whole else f.select(f.below(count, lanes), value, constant(other, type_))
