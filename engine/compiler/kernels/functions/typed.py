"""Functions of float64 and int64 vectors by name; smaller integers are widened for computing and truncated on store.

A truth value is 1 or 0 and keeps its mask, as for float32 vectors. Processors trap on integer divisions by 0 and of the
least integer by -1, so these are never executed: a division by 0 gives 0, as in numpy; one by -1 negates and wraps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine.compiler.codegen.ir import Function, Value, constant, lanes_of, vector
from engine.compiler.kernels.functions import (
    double_activation,
    double_logarithm,
    double_special,
    exponential,
)
from engine.compiler.kernels.functions.comparison import Truth
from engine.compiler.kernels.functions.math import SHARED

_ORDERS = {"eq": "eq", "ne": "ne", "lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge"}
"""Comparison -> LLVM's predicate for integers."""
BITS = 64
_WIDTHS = {
    "int8": (8, "sext"), "int16": (16, "sext"), "int32": (32, "sext"),
    "uint8": (8, "zext"), "uint16": (16, "zext"), "uint32": (32, "zext"),
}  # fmt: skip
"""Dtypes computed in a wider type -> their bits, and how they are extended."""


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


def _is_true(f: Function, x: Value) -> Value:
    """Return the mask of non-zero elements."""
    return x.mask if isinstance(x, Truth) else f.compare("ne", x, constant(0, x.type))


def as_truth(f: Function, mask: Value, type_: str) -> Truth:
    """Emit 1 where a mask is on, else 0, in vectors of a type."""
    value = f.select(mask, constant(1, type_), constant(0, type_))
    return Truth(value.text, value.type, mask)


def _compared(how: str) -> Callable[[Function, Value, Value], Value]:
    return lambda f, a, b: as_truth(f, f.compare(how, a, b), a.type)


def _combined(name: str) -> Callable[[Function, Value, Value], Value]:
    return lambda f, a, b: as_truth(f, f.binary(name, _is_true(f, a), _is_true(f, b)), a.type)


def _binary(name: str) -> Callable[[Function, Value, Value], Value]:
    return lambda f, a, b: f.binary(name, a, b)


def _negated(f: Function, x: Value) -> Value:
    return f.binary("sub", constant(0, x.type), x)


def _magnitude(f: Function, x: Value) -> Value:
    return f.select(f.compare("slt", x, constant(0, x.type)), _negated(f, x), x)


def _selected(f: Function, condition: Value, a: Value, b: Value) -> Value:
    return f.select(_is_true(f, condition), a, b)


def _extremum(how: str) -> Callable[[Function, Value, Value], Value]:
    return lambda f, a, b: f.select(f.compare(how, a, b), a, b)


_larger, _smaller = _extremum("sgt"), _extremum("slt")


def _shifted_right(f: Function, x: Value, count: Value) -> Value:
    """Emit x / 2**count rounded down; -1 or 0 if the count exceeds the bits."""
    most = constant(BITS - 1, count.type)
    return f.binary("ashr", x, f.select(f.compare("ult", count, most), count, most))


def _shifted_left(f: Function, x: Value, count: Value) -> Value:
    """Emit x * 2**count; 0 if the count exceeds the bits."""
    is_inside = f.compare("ult", count, constant(BITS, count.type))
    shifted = f.binary("shl", x, f.select(is_inside, count, constant(0, count.type)))
    return f.select(is_inside, shifted, constant(0, x.type))


def _wrapped(bits: int, extension: str) -> Callable[[Function, Value], Value]:
    """Return the function that keeps the lowest ``bits`` bits and extends them."""

    def wrapped(f: Function, x: Value) -> Value:
        return f.convert(extension, f.convert("trunc", x, vector(lanes_of(x.type), f"i{bits}")), x.type)

    return wrapped


def _as_it_is(f: Function, x: Value) -> Value:
    return x


def _between(f: Function, x: Value, low: Value, high: Value) -> Value:
    return _smaller(f, _larger(f, x, low), high)


def _sign(f: Function, x: Value) -> Value:
    zero = constant(0, x.type)
    below = f.select(f.compare("slt", x, zero), constant(-1, x.type), zero)
    return f.select(f.compare("sgt", x, zero), constant(1, x.type), below)


INTEGERS: Mapping[str, Callable[..., Value]] = {
    "add": _binary("add"),
    "sub": _binary("sub"),
    "mul": _binary("mul"),
    "square": lambda f, x: f.binary("mul", x, x),
    "neg": _negated,
    "abs": _magnitude,
    "max": _larger,
    "min": _smaller,
    "and": _binary("and"),
    "or": _binary("or"),
    "xor": _binary("xor"),
    "lshift": _shifted_left,
    "rshift": _shifted_right,
    "relu": lambda f, x: _larger(f, x, constant(0, x.type)),
    "clip": _between,
    "sign": _sign,
    "floor_divide": floored,
    "divide": truncated,
    "remainder": remainder,
    "fmod": fmod,
    "cube": lambda f, x: f.binary("mul", f.binary("mul", x, x), x),
    **dict.fromkeys(("floor", "ceil", "round", "trunc"), _as_it_is),
    "signbit": lambda f, x: as_truth(f, f.compare("slt", x, constant(0, x.type)), x.type),
    "where": _selected,
    **{f"as_{name}": _wrapped(bits, extension) for name, (bits, extension) in _WIDTHS.items()},
    "as_bool": lambda f, x: as_truth(f, _is_true(f, x), x.type),
    "as_int64": _as_it_is,
    "logical_not": lambda f, x: as_truth(f, f.compare("eq", x, constant(0, x.type)), x.type),
    **{f"logical_{name}": _combined(name) for name in ("and", "or", "xor")},
    **{name: _compared(how) for name, how in _ORDERS.items()},
}
DIVISIONS = frozenset({"floor_divide", "divide", "remainder", "fmod"})
"""Functions that raise for a divisor of 0 in PyTorch."""
RING = frozenset({"add", "sub", "mul", "square", "cube", "neg", "and", "or", "xor"})
"""Functions whose low bits depend only on low bits: truncating once after many of them is enough."""

_BY_OWN_NAMES: tuple[Callable[..., Value], ...] = (
    double_logarithm.log, double_logarithm.log2, double_logarithm.log10, double_logarithm.log1p,
    double_special.erf, double_special.erfc, double_special.lgamma, double_activation.gelu,
)  # fmt: skip
DOUBLES: Mapping[str, Callable[..., Value]] = {
    **SHARED,
    **{each.__name__: each for each in _BY_OWN_NAMES},
    **double_activation.DOUBLES.by_name,
    "exp_or_zero": exponential.exp,
}
