"""Logarithms of float64.

x = 2**k (1 + f) with f from sqrt(1/2) - 1 to sqrt(2) - 1, and log(1 + f) is computed in s = f / (2 + f). Nothing here
needs a fused multiply-add.

Source: coefficients and arrangement of FreeBSD's e_log.c (Sun Microsystems 1993, freely granted).
"""

from __future__ import annotations

import math
from typing import Final

from engine.compiler.codegen.ir import Function, Value, constant
from engine.compiler.kernels.functions.arithmetic import (
    absolute,
    double_bits,
    integer,
    like,
    logarithm_edges,
    negative,
    polynomial,
)
from engine.compiler.kernels.functions.exponential import exp, format_of

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
