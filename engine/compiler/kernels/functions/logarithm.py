"""Logarithms: x = 2**k (1 + f) with f from sqrt(1/2) - 1 to sqrt(2) - 1, and log(1 + f) = f + f**2 P(f).

Source: own minimax fits (tests/data/compiler/fit_math.py); log(2) in two parts as Cody and Waite.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from engine.compiler.codegen.ir import Function, Value, constant, lanes_of, vector
from engine.compiler.kernels.functions.arithmetic import (
    absolute,
    bits,
    from_bits,
    integer,
    like,
    logarithm_edges,
    negative,
    polynomial,
)
from engine.compiler.kernels.functions.exponential import exp_down

_SQRT_HALF_BITS: Final = 0x3F3504F3
_LEAST_NORMAL: Final = 2.0**-126


@dataclass(frozen=True, slots=True)
class _Base:
    """log_b(x) = k log_b(2) + f log_b(e) + f**2 P(f), both constants as a head and a tail.

    The heads of log_b(2) have few bits: k times one is exact.
    """

    two: tuple[float, float]
    e: tuple[float, float]
    rest: tuple[float, ...]


_NATURAL: Final = _Base(
    two=(0.693145751953125, 1.428606820309417e-06),
    e=(1.0, 0.0),
    rest=(-0.07609259337186813, 0.12901417911052704, -0.13246344029903412, 0.1418227255344391, -0.16608718037605286,
          0.20001961290836334, -0.2500160038471222, 0.33333325386047363, -0.49999988079071045),
)  # fmt: skip
_BINARY: Final = _Base(
    two=(1.0, 0.0),
    e=(1.44268798828125, 7.0526075433825794e-06),
    rest=(-0.11096178740262985, 0.18721675872802734, -0.19119133055210114, 0.2044484168291092, -0.2395811825990677,
          0.2885737717151642, -0.3606984317302704, 0.4808981716632843, -0.7213473320007324),
)  # fmt: skip
_DECIMAL: Final = _Base(
    two=(0.30102539062500, 4.6050389811952147e-06),
    e=(0.4342944920063019, -1.0103050118726031e-08),
    rest=(-0.03329908475279808, 0.056241802871227264, -0.05753602460026741, 0.06156148016452789, -0.07212549448013306,
          0.08686871081590652, -0.10858084261417389, 0.14476478099822998, -0.21714718639850616),
)  # fmt: skip


def log(f: Function, x: Value) -> Value:
    """Emit the natural logarithm within 1 ulp; -inf at 0, NaN below."""
    return _log(f, x, _NATURAL)


def log2(f: Function, x: Value) -> Value:
    """Emit log(x) / log(2) within 2 ulp; exact for powers of two."""
    return _log(f, x, _BINARY)


def log10(f: Function, x: Value) -> Value:
    """Emit log(x) / log(10) within 2 ulp."""
    return _log(f, x, _DECIMAL)


def log1p(f: Function, x: Value) -> Value:
    """Emit log(1 + x) within 2 ulp; -inf at -1, NaN below."""
    sum_ = f.fadd(x, like(x, 1.0))
    shift, k = _exponent(f, sum_)
    # (1 + x) / 2**k - 1 without the error of the sum. The scale is 4 / 2**k, which is a normal number for every k.
    scale = from_bits(f, f.binary("sub", constant(0x40800000, shift.type), shift))
    rest = f.fma(scale, like(x, 0.25), like(x, -1.0))
    fraction = f.fma(f.fmul(x, like(x, 0.25)), scale, rest)
    result = logarithm_edges(f, sum_, _combined(f, k, fraction, _NATURAL))
    return f.select(f.compare("olt", absolute(f, x), like(x, 2.0**-25)), x, result)


def log1p_exp_minus(f: Function, x: Value) -> Value:
    """Emit log(1 + e**-x) for x >= 0 within 2 ulp."""
    e = exp_down(f, negative(f, x))
    is_large = f.compare("ogt", e, like(x, 2**0.5 - 1))
    # 1 + e is below 2, and its k is 0 or 1.
    scale = f.select(is_large, like(x, 0.5), like(x, 1.0))
    k = f.select(is_large, like(x, 1.0), like(x, 0.0))
    return _combined(f, k, f.fma(e, scale, f.fsub(scale, like(x, 1.0))), _NATURAL)


def _log(f: Function, x: Value, base: _Base) -> Value:
    is_small = f.compare("olt", x, like(x, _LEAST_NORMAL))
    normal = f.select(is_small, f.fmul(x, like(x, 2.0**23)), x)
    shift, k = _exponent(f, normal)
    k = f.fadd(k, f.select(is_small, like(x, -23.0), like(x, 0.0)))
    fraction = f.fsub(from_bits(f, f.binary("sub", bits(f, normal), shift)), like(x, 1.0))
    return logarithm_edges(f, x, _combined(f, k, fraction, base))


def _exponent(f: Function, x: Value) -> tuple[Value, Value]:
    """Emit k as bits in the exponent field, and as a float: x / 2**k is from sqrt(1/2) to sqrt(2)."""
    above = integer(f, "sub", bits(f, x), _SQRT_HALF_BITS)
    k = integer(f, "ashr", above, 23)
    return integer(f, "shl", k, 23), f.convert("sitofp", k, vector(lanes_of(x.type)))


def _combined(f: Function, k: Value, fraction: Value, base: _Base) -> Value:
    """Emit log_b(2**k (1 + fraction)), small terms first."""
    total = f.fmul(f.fmul(fraction, fraction), polynomial(f, fraction, base.rest))
    for factor, number in ((k, base.two[1]), (fraction, base.e[1]), (fraction, base.e[0]), (k, base.two[0])):
        if number == 1.0:
            total = f.fadd(factor, total)
        elif number:
            total = f.fma(factor, like(k, number), total)
    return total
