"""Many vectors folded into one: their sums and maxima, lane by lane."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

from engine.compiler.ir import Function, Value, constant


def total(f: Function, values: Sequence[Value]) -> Value:
    """The sum, in a tree."""
    values = list(values)
    while len(values) > 1:
        pairs = [f.fadd(a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
        values = pairs + values[2 * len(pairs) :]
    return values[0]


def largest(f: Function, values: Sequence[Value]) -> Value:
    """The maximum; NaN if one is.

    A processor's maximum gives its second operand when one is NaN. The last value's NaN survives by itself then; the
    others are looked for two at a time.
    """
    *others, _ = values
    result = reduce(lambda a, b: f.select(f.compare("ogt", a, b), a, b), values)
    if not others:
        return result
    pairs = [others[k : k + 2] for k in range(0, len(others), 2)]
    masks = [f.compare("uno", pair[0], pair[-1]) for pair in pairs]
    is_nan = reduce(lambda a, b: f.binary("or", a, b), masks)
    return f.select(is_nan, constant(math.nan, result.type), result)
