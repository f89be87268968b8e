"""Quotients, remainders and powers of vectors of 64-bit integers, signed or unsigned.

Processors trap on division by 0 and of the least integer by -1, so these divisions are never executed. A division by 0
gives 0, as in numpy; a division by -1 negates and wraps.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.compiler.codegen.ir import Function, Value, constant

# Bits of an exponent handled without a loop; larger exponents are rare.
_FEW = 6
_BITS = 64


def truncated(f: Function, a: Value, b: Value) -> Value:
    """Emit a / b rounded towards zero."""
    return _divided(f, a, b)[0]


def floored(f: Function, a: Value, b: Value) -> Value:
    """Emit a / b rounded down."""
    ratio, left = _divided(f, a, b)
    return f.select(_goes_down(f, left, b), f.binary("sub", ratio, constant(1, a.type)), ratio)


def fmod(f: Function, a: Value, b: Value) -> Value:
    """Emit the remainder of a / b rounded towards zero; it has the sign of a."""
    return f.binary("srem", a, _harmless(f, b))


def remainder(f: Function, a: Value, b: Value) -> Value:
    """Emit the remainder of a / b rounded down; it has the sign of b."""
    left = fmod(f, a, b)
    return f.select(_goes_down(f, left, b), f.binary("add", left, b), left)


def unsigned_quotient(f: Function, a: Value, b: Value) -> Value:
    """Emit a / b of unsigned numbers, rounded down."""
    zero = constant(0, b.type)
    is_zero = f.compare("eq", b, zero)
    ratio = f.binary("udiv", a, f.select(is_zero, constant(1, b.type), b))
    return f.select(is_zero, zero, ratio)


def unsigned_remainder(f: Function, a: Value, b: Value) -> Value:
    """Emit the remainder of a / b of unsigned numbers."""
    is_zero = f.compare("eq", b, constant(0, b.type))
    return f.binary("urem", a, f.select(is_zero, constant(1, b.type), b))


def raised(f: Function, base: Value, exponent: Value) -> Value:
    """Emit base ** exponent, which wraps; negative powers are 0 except those of 1 and -1."""
    zero, one = constant(0, base.type), constant(1, base.type)
    is_negative = f.compare("slt", exponent, zero)
    power = unsigned_raised(f, base, f.select(is_negative, zero, exponent))
    is_odd = f.compare("ne", f.binary("and", exponent, one), zero)
    minus = constant(-1, base.type)
    of_negative = f.select(f.compare("eq", base, minus), f.select(is_odd, minus, one), zero)
    return f.select(is_negative, f.select(f.compare("eq", base, one), one, of_negative), power)


def unsigned_raised(f: Function, base: Value, exponent: Value) -> Value:
    """Emit base ** exponent with an unsigned exponent; it wraps."""
    state = [constant(1, base.type), base, exponent]
    for _ in range(_FEW):
        state = _step(f, state)
    is_large = f.any(f.compare("ne", state[2], constant(0, base.type)))

    def remaining_bits() -> Sequence[Value]:
        with f.loop(_FEW, _BITS, carry=state) as loop:
            loop.carry(_step(f, loop.carried))
        return loop.results[:1]

    return f.select_lazily(state[:1], is_large, remaining_bits)[0]


def _step(f: Function, state: Sequence[Value]) -> list[Value]:
    """Process one bit of the exponent: return the product, the next square, and the remaining bits."""
    product, square, exponent = state
    one = constant(1, exponent.type)
    is_on = f.compare("ne", f.binary("and", exponent, one), constant(0, exponent.type))
    product = f.select(is_on, f.binary("mul", product, square), product)
    return [product, f.binary("mul", square, square), f.binary("lshr", exponent, one)]


def _harmless(f: Function, b: Value) -> Value:
    """Emit a divisor with 0 and -1 replaced by 1: the remainder is 0 as well."""
    above = f.binary("add", b, constant(1, b.type))
    return f.select(f.compare("ult", above, constant(2, b.type)), constant(1, b.type), b)


def _divided(f: Function, a: Value, b: Value) -> tuple[Value, Value]:
    """Emit a / b rounded towards zero, and the remainder."""
    zero, divisor = constant(0, b.type), _harmless(f, b)
    ratio = f.binary("sdiv", a, divisor)
    left = f.binary("sub", a, f.binary("mul", ratio, divisor))
    ratio = f.select(f.compare("eq", b, constant(-1, b.type)), f.binary("sub", zero, a), ratio)
    return f.select(f.compare("eq", b, zero), zero, ratio), left


def _goes_down(f: Function, left: Value, b: Value) -> Value:
    """Emit whether the quotient rounded towards zero exceeds the exact one."""
    zero = constant(0, b.type)
    differs = f.compare("slt", f.binary("xor", left, b), zero)
    return f.binary("and", f.compare("ne", left, zero), differs)
