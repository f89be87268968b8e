"""Quotients and remainders of vectors of 64-bit integers.

Processors trap on division by 0 and of the least integer by -1, so these divisions are never executed. A division by 0
gives 0, as in numpy; a division by -1 negates and wraps.
"""

from __future__ import annotations

from engine.compiler.codegen.ir import Function, Value, constant


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
