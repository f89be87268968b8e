"""x**y = 2**(y log2 |x|), the logarithm and the product each as a pair of numbers; and hypot.

Products of 26-bit numbers are exact on every processor: nothing here needs a fused multiply-add.

Source: the arrangement of FreeBSD's e_pow.c (Sun Microsystems 1993, freely granted).
"""

from __future__ import annotations

import math
from typing import Final

from engine.compiler.codegen.ir import Function, Value
from engine.compiler.kernels.functions.arithmetic import (
    absolute,
    between,
    double_bits,
    integer,
    like,
    maximum,
    minimum,
    polynomial,
)
from engine.compiler.kernels.functions.double_logarithm import parts
from engine.compiler.kernels.functions.exponential import exp2_of_sum
from engine.compiler.kernels.functions.power import with_edges

# 3 log(m) / (2 s) - 3 - s**2 over s**4, in s**2, s = (m - 1) / (m + 1), m from sqrt(1/2) to sqrt(2), to 1e-21.
_SERIES: Final = tuple(3 / (2 * k + 1) for k in range(14, 1, -1))
# 2 / (3 log(2)), its first 21 bits, and the remainder.
_SCALE: Final = 9.61796693925975554329e-01
_SCALE_HEAD: Final = 9.61796700954437255859e-01
_SCALE_TAIL: Final = -7.02846165095275826516e-09
_LARGEST_EXPONENT: Final = 2.0**65  # beyond, every power of a number other than 1 is infinite or 0
_HEAD_MASK: Final = -(1 << 27)


def power(f: Function, x: Value, y: Value) -> Value:
    """Emit x**y within 2 ulp, subnormal results too; special cases as in C."""
    magnitude = absolute(f, x)
    head, tail = _log2(f, magnitude)
    held = between(f, y, -_LARGEST_EXPONENT, _LARGEST_EXPONENT)
    short = _head(f, held)
    large = f.fmul(short, head)
    small = f.fadd(f.fmul(f.fsub(held, short), head), f.fmul(held, tail))
    result = exp2_of_sum(f, large, small)
    zero, infinity = like(x, 0.0), like(x, math.inf)
    is_up = f.compare("ogt", y, zero)
    at_zero, at_infinity = f.select(is_up, zero, infinity), f.select(is_up, infinity, zero)
    result = f.select(f.compare("oeq", magnitude, zero), at_zero, result)
    return with_edges(f, x, y, f.select(f.compare("oeq", magnitude, infinity), at_infinity, result))


def hypot(f: Function, x: Value, y: Value) -> Value:
    """Emit sqrt(x**2 + y**2) within 1.5 ulp, scaled by the larger one; infinite if either is."""
    a, b, infinity = absolute(f, x), absolute(f, y), like(x, math.inf)
    larger, smaller = maximum(f, a, b), minimum(f, a, b)
    is_large = f.compare("ogt", larger, like(x, 2.0**500))
    scale = f.select(is_large, like(x, 2.0**-600), like(x, 1.0))
    scale = f.select(f.compare("olt", larger, like(x, 2.0**-500)), like(x, 2.0**600), scale)
    p, q = f.fmul(larger, scale), f.fmul(smaller, scale)
    length = f.fdiv(f.intrinsic("sqrt", f.fadd(f.fmul(p, p), f.fmul(q, q))), scale)
    is_infinite = f.binary("or", f.compare("oeq", a, infinity), f.compare("oeq", b, infinity))
    return f.select(is_infinite, infinity, length)


def _log2(f: Function, x: Value) -> tuple[Value, Value]:
    """Emit log2(x) for x > 0 as a 26-bit number and the remainder, to 2**-64 of it."""
    k, above = parts(f, x)
    m = f.fadd(above, like(x, 1.0))
    below = f.fadd(m, like(x, 1.0))
    inverse = f.fdiv(like(x, 1.0), below)
    s = f.fmul(above, inverse)
    s_head, below_head = _head(f, s), _head(f, below)
    below_tail = f.fsub(m, f.fsub(below_head, like(x, 1.0)))
    gap = f.fsub(f.fsub(above, f.fmul(s_head, below_head)), f.fmul(s_head, below_tail))
    s_tail = f.fmul(inverse, gap)
    square, three = f.fmul(s, s), like(x, 3.0)
    rest = f.fmul(f.fmul(square, square), polynomial(f, square, _SERIES))
    rest = f.fadd(rest, f.fmul(s_tail, f.fadd(s_head, s)))
    square = f.fmul(s_head, s_head)
    head = _head(f, f.fadd(f.fadd(three, square), rest))
    tail = f.fsub(rest, f.fsub(f.fsub(head, three), square))
    u = f.fmul(s_head, head)
    v = f.fadd(f.fmul(s_tail, head), f.fmul(tail, s))
    head = _head(f, f.fadd(u, v))
    tail = f.fsub(v, f.fsub(head, u))
    large = f.fmul(like(x, _SCALE_HEAD), head)
    small = f.fadd(f.fmul(like(x, _SCALE_TAIL), head), f.fmul(tail, like(x, _SCALE)))
    result = _head(f, f.fadd(f.fadd(large, small), k))
    return result, f.fsub(small, f.fsub(f.fsub(result, k), large))


def _head(f: Function, x: Value) -> Value:
    """Emit the first 26 bits of a number."""
    return f.convert("bitcast", integer(f, "and", double_bits(f, x), _HEAD_MASK), x.type)
