"""Quotients, remainders and powers of vectors of 64-bit integers, signed or not.

Processors stop a program that divides by 0, or the least integer by -1. Here no such division is ever asked for: of a
divisor of 0 the result is 0, as numpy has it, and -1 turns the sign over, which wraps.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.compiler.codegen.ir import Function, Value, constant

# Bits of an exponent that are looked at without a loop; larger ones are rare.
_FEW = 6
_BITS = 64


def truncated(f: Function, a: Value, b: Value) -> Value:
    """a / b rounded towards zero."""
    return _divided(f, a, b)[0]


def floored(f: Function, a: Value, b: Value) -> Value:
    """a / b rounded down."""
    ratio, rest = _divided(f, a, b)
    return f.select(_goes_down(f, rest, b), f.binary("sub", ratio, constant(1, a.type)), ratio)


def rest(f: Function, a: Value, b: Value) -> Value:
    """What a / b rounded towards zero leaves; it has the sign of a."""
    return f.binary("srem", a, _harmless(f, b))


def remainder(f: Function, a: Value, b: Value) -> Value:
    """What a / b rounded down leaves; it has the sign of b."""
    left = rest(f, a, b)
    return f.select(_goes_down(f, left, b), f.binary("add", left, b), left)


def unsigned_quotient(f: Function, a: Value, b: Value) -> Value:
    """a / b of numbers without a sign, rounded down."""
    zero = constant(0, b.type)
    is_zero = f.compare("eq", b, zero)
    ratio = f.binary("udiv", a, f.select(is_zero, constant(1, b.type), b))
    return f.select(is_zero, zero, ratio)


def unsigned_rest(f: Function, a: Value, b: Value) -> Value:
    """What a / b of numbers without a sign leaves."""
    is_zero = f.compare("eq", b, constant(0, b.type))
    return f.binary("urem", a, f.select(is_zero, constant(1, b.type), b))


def raised(f: Function, base: Value, exponent: Value) -> Value:
    """base ** exponent, which wraps; a negative power is 0 but of 1 and -1."""
    zero, one = constant(0, base.type), constant(1, base.type)
    is_negative = f.compare("slt", exponent, zero)
    power = unsigned_raised(f, base, f.select(is_negative, zero, exponent))
    is_odd = f.compare("ne", f.binary("and", exponent, one), zero)
    minus = constant(-1, base.type)
    turned = f.select(f.compare("eq", base, minus), f.select(is_odd, minus, one), zero)
    return f.select(is_negative, f.select(f.compare("eq", base, one), one, turned), power)


def unsigned_raised(f: Function, base: Value, exponent: Value) -> Value:
    """base ** exponent of an exponent without a sign, which wraps."""
    state = [constant(1, base.type), base, exponent]
    for _ in range(_FEW):
        state = _step(f, state)
    is_large = f.any(f.compare("ne", state[2], constant(0, base.type)))

    def others() -> Sequence[Value]:
        with f.loop(_FEW, _BITS, carry=state) as loop:
            loop.carry(_step(f, loop.carried))
        return loop.results[:1]

    return f.chosen(state[:1], is_large, others)[0]


def _step(f: Function, state: Sequence[Value]) -> list[Value]:
    """One bit of an exponent: the product so far, the base squared once more, and the bits that are left."""
    product, square, exponent = state
    one = constant(1, exponent.type)
    is_on = f.compare("ne", f.binary("and", exponent, one), constant(0, exponent.type))
    product = f.select(is_on, f.binary("mul", product, square), product)
    return [product, f.binary("mul", square, square), f.binary("lshr", exponent, one)]


def _harmless(f: Function, b: Value) -> Value:
    """A divisor, 1 where it is 0 or -1: what these leave is 0 as well."""
    above = f.binary("add", b, constant(1, b.type))
    return f.select(f.compare("ult", above, constant(2, b.type)), constant(1, b.type), b)


def _divided(f: Function, a: Value, b: Value) -> tuple[Value, Value]:
    """a / b rounded towards zero, and what that leaves."""
    zero, divisor = constant(0, b.type), _harmless(f, b)
    ratio = f.binary("sdiv", a, divisor)
    left = f.binary("sub", a, f.binary("mul", ratio, divisor))
    ratio = f.select(f.compare("eq", b, constant(-1, b.type)), f.binary("sub", zero, a), ratio)
    return f.select(f.compare("eq", b, zero), zero, ratio), left


def _goes_down(f: Function, left: Value, b: Value) -> Value:
    """Whether a quotient cut towards zero is above the true one."""
    zero = constant(0, b.type)
    differs = f.compare("slt", f.binary("xor", left, b), zero)
    return f.binary("and", f.compare("ne", left, zero), differs)
