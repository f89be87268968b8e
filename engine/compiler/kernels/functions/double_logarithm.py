"""Logarithms, powers and hypot of float64.

A logarithm splits x = 2**k (1 + f) with f from sqrt(1/2) - 1 to sqrt(2) - 1, and log(1 + f) is computed in
s = f / (2 + f). A power is x**y = 2**(y log2 |x|), the logarithm and the product each as a pair of numbers. Products of
26-bit numbers are exact on every processor: nothing here needs a fused multiply-add.

Source: coefficients and arrangement of FreeBSD's e_log.c and e_pow.c (Sun Microsystems 1993, freely granted).
"""

from __future__ import annotations

import math
from typing import Final

from engine.compiler.codegen.ir import Function, Value, constant
from engine.compiler.kernels.functions.arithmetic import (
    absolute,
    between,
    double_bits,
    integer,
    like,
    logarithm_edges,
    maximum,
    minimum,
    negative,
    polynomial,
)
from engine.compiler.kernels.functions.exponential import exp, exp2_of_sum, format_of
from engine.compiler.kernels.functions.logarithm import with_edges

_SQRT_HALF_BITS: Final = 0x3FE6A09E667F3BCD
_LEAST_NORMAL: Final = 2.0**-1022
# (log(1 + f) - 2 s) / s - f**2 / 2 and the like, in s**2.
_SERIES: Final = (
    1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01, 2.222219843214978396e-01,
    2.857142874366239149e-01, 3.999999999940941908e-01, 6.666666666666735130e-01, 0.0,
)  # fmt: skip


def log(f: Function, x: Value) -> Value:
    """Emit the natural logarithm within 1.5 ulp; -inf at 0, NaN below."""
    k, fraction = parts(f, x)
    return logarithm_edges(f, x, _combined(f, k, fraction, like(x, 0.0)))


def log2(f: Function, x: Value) -> Value:
    """Emit log(x) / log(2) within 3 ulp; exact for powers of two."""
    k, fraction = parts(f, x)
    part = _combined(f, like(x, 0.0), fraction, like(x, 0.0))
    return logarithm_edges(f, x, f.fma(part, like(x, 1 / math.log(2)), k))


def log10(f: Function, x: Value) -> Value:
    """Emit log(x) / log(10) within 3 ulp."""
    return f.fmul(log(f, x), like(x, 1 / math.log(10)))


def log1p(f: Function, x: Value) -> Value:
    """Emit log(1 + x) within 2 ulp; -inf at -1, NaN below."""
    one = like(x, 1.0)
    sum_ = f.fadd(x, one)
    k, fraction = parts(f, sum_)
    is_small = f.compare("olt", absolute(f, x), one)
    lost = f.select(is_small, f.fsub(x, f.fsub(sum_, one)), f.fsub(one, f.fsub(sum_, x)))
    lost = f.select(f.compare("olt", absolute(f, sum_), like(x, 2.0**60)), f.fdiv(lost, sum_), like(x, 0.0))
    result = logarithm_edges(f, sum_, _combined(f, k, fraction, lost))
    return f.select(f.compare("olt", absolute(f, x), like(x, 2.0**-54)), x, result)


def log1p_exp_minus(f: Function, x: Value) -> Value:
    """Emit log(1 + e**-x) for x >= 0 within 2 ulp."""
    return log1p(f, exp(f, negative(f, x)))


def parts(f: Function, x: Value) -> tuple[Value, Value]:
    """Emit k and f of x = 2**k (1 + f), for x > 0."""
    is_small = f.compare("olt", x, like(x, _LEAST_NORMAL))
    normal = f.select(is_small, f.fmul(x, like(x, 2.0**54)), x)
    code = double_bits(f, normal)
    k = integer(f, "ashr", integer(f, "sub", code, _SQRT_HALF_BITS), 52)
    rest = f.convert("bitcast", f.binary("sub", code, integer(f, "shl", k, 52)), x.type)
    # Added to 2**52, an integer is the low bits: not every processor converts 64-bit integers.
    held = f.binary("xor", integer(f, "add", k, 1 << 51), constant(0x4330000000000000, k.type))
    number = f.fsub(f.convert("bitcast", held, x.type), like(x, 2.0**52 + 2.0**51))
    number = f.fadd(number, f.select(is_small, like(x, -54.0), like(x, 0.0)))
    return number, f.fsub(rest, like(x, 1.0))


def _combined(f: Function, k: Value, fraction: Value, lost: Value) -> Value:
    """Emit log(2**k (1 + fraction)) + lost, small terms first."""
    s = f.fdiv(fraction, f.fadd(fraction, like(k, 2.0)))
    half = f.fmul(f.fmul(fraction, fraction), like(k, 0.5))
    series = f.fadd(half, polynomial(f, f.fmul(s, s), _SERIES))
    head, tail = format_of(k).ln2
    small = f.fma(s, series, f.fma(k, like(k, tail), lost))
    return f.fsub(f.fmul(k, like(k, head)), f.fsub(f.fsub(half, small), fraction))


# 3 log(m) / (2 s) - 3 - s**2 over s**4, in s**2, s = (m - 1) / (m + 1), m from sqrt(1/2) to sqrt(2), to 1e-21.
_LOG2_SERIES: Final = tuple(3 / (2 * k + 1) for k in range(14, 1, -1))
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
    rest = f.fmul(f.fmul(square, square), polynomial(f, square, _LOG2_SERIES))
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
