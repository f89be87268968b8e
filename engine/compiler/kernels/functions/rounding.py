"""Rounding to integers and remainders of divisions: exact, as in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.compiler.codegen.ir import Function, Value, fuses_products
from engine.compiler.kernels.functions.arithmetic import (
    absolute,
    bits,
    copysign,
    double_bits,
    double_constant,
    integer,
    like,
    negative,
    to_double,
    to_float,
)

# A quotient cut to this many bits can be multiplied by a float32 exactly in float64.
_HIGH_BITS = -(2**29)


WAYS = {"floor": "floor", "ceil": "ceil", "round": "roundeven", "trunc": "trunc"}
"""Function -> LLVM's intrinsic; ``round`` rounds halves to even."""


def rounded(way: str) -> Callable[[Function, Value], Value]:
    """Return the function that rounds to an integer; ``way`` is LLVM's name."""
    return lambda f, x: f.intrinsic(way, x)


@dataclass(frozen=True, slots=True)
class Code(Value):
    """Vector of whole numbers, each also as an integer whose low byte counts."""

    whole: Value


# Added to a float32 below 2**22, it rounds to an integer, halves to even, which is then in the low bits of the sum.
_ROUNDER = 1.5 * 2**23


def code(f: Function, x: Value, zero: Value) -> Code:
    """Emit the nearest integer, halves to even, plus a whole number; both below 2**22."""
    rounder = like(x, _ROUNDER)
    rounded_, moved = (f.fadd(each, rounder) for each in (x, zero))
    whole = f.binary("add", bits(f, rounded_), bits(f, moved))
    value = f.fadd(f.fsub(rounded_, rounder), zero)
    return Code(value.text, value.type, whole)


def quotient(f: Function, x: Value, divisor: Value, inverse: Value) -> Value:
    """Emit x / divisor within 0.5 ulp, given 1 / divisor; all are far from the least and the largest float32.

    Where products and sums are fused, it takes three instructions.
    """
    if not fuses_products():
        return f.fdiv(x, divisor)
    near = f.fmul(x, inverse)
    return f.fma(f.fma(negative(f, near), divisor, x), inverse, near)


def limit(f: Function, x: Value, low: Value, high: Value) -> Value:
    """Emit min(max(x, low), high); the lower limit for NaN."""
    larger = f.select(f.compare("ogt", x, low), x, low)
    return f.select(f.compare("olt", larger, high), larger, high)


def frac(f: Function, x: Value) -> Value:
    """Emit x - trunc(x)."""
    return f.fsub(x, f.intrinsic("trunc", x))


def sign(f: Function, x: Value) -> Value:
    """Emit -1, 0 or 1; 0 for NaN."""
    zero = like(x, 0.0)
    below = f.select(f.compare("olt", x, zero), like(x, -1.0), zero)
    return f.select(f.compare("ogt", x, zero), like(x, 1.0), below)


def fmod(f: Function, a: Value, b: Value) -> Value:
    """Emit the exact remainder of a / b rounded towards zero; it has the sign of a."""
    dividend, divisor = to_double(f, absolute(f, a)), to_double(f, absolute(f, b))
    rest = copysign(f, to_float(f, _fmod_remainder(f, dividend, divisor)), a)
    return f.select(f.compare("uno", b, b), b, rest)


def remainder(f: Function, a: Value, b: Value) -> Value:
    """Emit the remainder of a / b rounded down; it has the sign of b."""
    rest = fmod(f, a, b)
    return f.select(_is_opposite(f, rest, b), f.fadd(rest, b), rest)


def floor_divide(f: Function, a: Value, b: Value) -> Value:
    """Emit a / b rounded down, from the exact remainder; a / b where b is 0."""
    rest = fmod(f, a, b)
    ratio = f.fdiv(a, b)
    whole = f.fdiv(f.fsub(a, rest), b)
    whole = f.select(_is_opposite(f, rest, b), f.fsub(whole, like(a, 1.0)), whole)
    down = f.intrinsic("floor", whole)
    down = f.select(f.compare("ogt", f.fsub(whole, down), like(a, 0.5)), f.fadd(down, like(a, 1.0)), down)
    down = f.select(f.compare("oeq", whole, like(a, 0.0)), copysign(f, like(a, 0.0), ratio), down)
    return f.select(f.compare("oeq", b, like(a, 0.0)), ratio, down)


def _is_opposite(f: Function, rest: Value, b: Value) -> Value:
    """Emit whether a remainder is not 0 and its sign differs from the divisor's."""
    zero = like(b, 0.0)
    differs = f.binary("xor", f.compare("olt", rest, zero), f.compare("olt", b, zero))
    return f.binary("and", f.compare("une", rest, zero), differs)


def _fmod_remainder(f: Function, dividend: Value, divisor: Value) -> Value:
    """Emit fmod of non-negative float64 that were float32: 24 bits of the quotient an iteration, mostly one."""
    type_ = dividend.type
    before, body, after = (f.block(f"fmod.{part}") for part in ("before", "body", "after"))
    f.jump(before)
    f.start(before)
    f.jump(body)
    f.start(body)
    following = Value(f"%{body}.rest", type_)
    rest = f.phi((dividend, before), (following, body))
    less = _reduced(f, rest, divisor)
    goes_on = f.compare("oge", rest, divisor)
    f.do(f"{following.text} = select {goes_on.type} {goes_on.text}, {type_} {less.text}, {type_} {rest.text}")
    f.branch(f.any(f.compare("oge", following, divisor)), body, after)
    f.start(after)
    return following


def _reduced(f: Function, rest: Value, divisor: Value) -> Value:
    """Emit ``rest`` minus a whole multiple of the divisor, exactly."""
    quotient = f.intrinsic("trunc", f.fdiv(rest, divisor))
    cut = integer(f, "and", double_bits(f, quotient), _HIGH_BITS)
    less = f.fsub(rest, f.fmul(f.convert("bitcast", cut, rest.type), divisor))
    # The quotient may have been rounded up to an integer.
    return f.select(f.compare("olt", less, double_constant(rest, 0.0)), f.fadd(less, divisor), less)
