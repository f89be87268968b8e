"""Building blocks of element-wise functions: exact arithmetic, extrema, bits, polynomials, float64 intermediates.

No function of this package sets a fast-math flag except ``nsz`` on extrema: as in PyTorch, the maximum of two zeros may
be either, so an extremum with a constant is one instruction on every processor.

Float32 functions that need more bits for a few steps widen to float64, which takes twice the registers.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

from engine.compiler.codegen.ir import Function, Value, constant, element_of, lanes_of, mangled, vector

ROUNDER = 1.5 * 2**52
"""Added to a float64 below 2**51, it rounds to an integer, which is then in the low bits of the sum."""


def like(x: Value, number: float) -> Value:
    """Return a number in every lane of the type of ``x``."""
    return constant(number, x.type)


def polynomial(f: Function, x: Value, coefficients: Sequence[float]) -> Value:
    """Emit a polynomial by Horner's rule, highest power first."""
    total = like(x, coefficients[0])
    for each in coefficients[1:]:
        total = f.fma(total, x, like(x, each))
    return total


def bits(f: Function, x: Value) -> Value:
    """Return the bits of a float32 as an i32, of a float64 as an i64."""
    return f.convert("bitcast", x, vector(lanes_of(x.type), "i64" if element_of(x.type) == "double" else "i32"))


def from_bits(f: Function, x: Value) -> Value:
    """Return the float32 that an i32 holds the bits of, or the float64 of an i64."""
    return f.convert("bitcast", x, vector(lanes_of(x.type), "double" if element_of(x.type) == "i64" else "float"))


def has_sign(f: Function, x: Value) -> Value:
    """Emit the mask of lanes whose sign bit is set, including -0."""
    whole = bits(f, x)
    return f.compare("slt", whole, constant(0, whole.type))


def integer(f: Function, name: str, a: Value, number: int) -> Value:
    """Emit ``add``, ``shl``, ``and`` ... of an integer vector and a number."""
    return f.binary(name, a, constant(number, a.type))


def negative(f: Function, x: Value) -> Value:
    """Emit -x."""
    return f.op(x.type, f"fneg {x.type} {x.text}")


def absolute(f: Function, x: Value) -> Value:
    """Emit the absolute value."""
    return f.intrinsic("fabs", x)


def square(f: Function, x: Value) -> Value:
    """Emit x * x."""
    return f.fmul(x, x)


def cube(f: Function, x: Value) -> Value:
    """Emit x * x * x, rounded twice as PyTorch's ``pow(x, 3)``."""
    return f.fmul(f.fmul(x, x), x)


def sqrt(f: Function, x: Value) -> Value:
    """Emit the correctly rounded square root; NaN below zero."""
    return f.intrinsic("sqrt", x)


def reciprocal(f: Function, x: Value) -> Value:
    """Emit 1 / x."""
    return f.fdiv(like(x, 1.0), x)


def rsqrt(f: Function, x: Value) -> Value:
    """Emit 1 / sqrt(x) within 1.5 ulp, rounded twice as PyTorch's."""
    return reciprocal(f, sqrt(f, x))


def copysign(f: Function, x: Value, sign: Value) -> Value:
    """Emit |x| with the sign of another number."""
    return f.intrinsic("copysign", x, sign)


def maximum(f: Function, a: Value, b: Value) -> Value:
    """Emit the larger; NaN if either is."""
    return _extremum(f, "maximum", a, b)


def minimum(f: Function, a: Value, b: Value) -> Value:
    """Emit the smaller; NaN if either is."""
    return _extremum(f, "minimum", a, b)


def larger_number(f: Function, a: Value, b: Value) -> Value:
    """Emit the larger; the other if one is NaN."""
    return f.select(f.compare("uno", a, a), b, f.select(f.compare("olt", a, b), b, a))


def smaller_number(f: Function, a: Value, b: Value) -> Value:
    """Emit the smaller; the other if one is NaN."""
    return f.select(f.compare("uno", a, a), b, f.select(f.compare("ogt", a, b), b, a))


def clip(f: Function, x: Value, low: Value, high: Value) -> Value:
    """Emit min(max(x, low), high); NaN stays NaN."""
    return minimum(f, maximum(f, x, low), high)


def between(f: Function, x: Value, low: float, high: float) -> Value:
    """Emit ``clip`` to two constants."""
    return clip(f, x, like(x, low), like(x, high))


def whole_sum(f: Function, words: Value) -> Value:
    """Emit the float32 of an int32 that is held as a word."""
    return f.convert("sitofp", bits(f, words), words.type)


def shifted_sum(f: Function, words: Value, shift: Value) -> Value:
    """Emit the float32 of the sum of two int32 that are held as words."""
    return f.convert("sitofp", f.binary("add", bits(f, words), bits(f, shift)), words.type)


def scaled_sum(f: Function, x: Value, a: Value, b: Value, factor: Value) -> Value:
    """Emit x + factor * a * b, each step rounded as PyTorch's ``addcmul``."""
    return f.fadd(x, f.fmul(f.fmul(factor, a), b))


def scaled_quotient(f: Function, x: Value, a: Value, b: Value, factor: Value) -> Value:
    """Emit x + factor * (a / b), as PyTorch's ``addcdiv``."""
    return f.fadd(x, f.fmul(factor, f.fdiv(a, b)))


def interpolate(f: Function, start: Value, end: Value, weight: Value) -> Value:
    """Emit start + weight * (end - start), from the nearer end so that both ends are exact."""
    way = f.fsub(end, start)
    near = f.fadd(start, f.fmul(weight, way))
    far = f.fsub(end, f.fmul(way, f.fsub(like(weight, 1.0), weight)))
    return f.select(f.compare("olt", absolute(f, weight), like(weight, 0.5)), near, far)


def _extremum(f: Function, name: str, a: Value, b: Value) -> Value:
    full = f"llvm.{name}.{mangled(a.type)}"
    f.declare(full, a.type, [a.type, a.type])
    return f.op(a.type, f"call nsz {a.type} @{full}({a.type} {a.text}, {b.type} {b.text})")


def logarithm_edges(f: Function, x: Value, result: Value) -> Value:
    """Emit the logarithm of x where it is NaN or infinite, else the result."""
    zero, infinity = like(x, 0.0), like(x, math.inf)
    result = f.select(f.compare("olt", x, infinity), result, x)
    result = f.select(f.compare("oeq", x, zero), like(x, -math.inf), result)
    return f.select(f.compare("olt", x, zero), like(x, math.nan), result)


def to_double(f: Function, x: Value) -> Value:
    """Convert float32 to float64."""
    return f.convert("fpext", x, vector(lanes_of(x.type), "double"))


def to_float(f: Function, x: Value) -> Value:
    """Round float64 to float32."""
    return f.convert("fptrunc", x, vector(lanes_of(x.type)))


def double_constant(x: Value, number: float) -> Value:
    """Return a float64 constant in as many lanes as ``x``."""
    (code,) = struct.unpack("<Q", struct.pack("<d", number))
    text, lanes = f"0x{code:016X}", lanes_of(x.type)
    return Value(text if lanes == 1 else f"<{', '.join([f'double {text}'] * lanes)}>", vector(lanes, "double"))


def double_bits(f: Function, x: Value) -> Value:
    """Emit the bits of a float64 as an i64."""
    return f.convert("bitcast", x, vector(lanes_of(x.type), "i64"))


def low_bits(f: Function, x: Value) -> Value:
    """Emit the low 32 bits of a float64 as an i32."""
    return f.convert("trunc", double_bits(f, x), vector(lanes_of(x.type), "i32"))
