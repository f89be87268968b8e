"""Conversion between float16 or bfloat16 in memory and float32 in registers.

Stores round to nearest even and overflow to infinity. Infinities, NaN and subnormals are preserved. Some processors
have bfloat16 instructions, but these flush subnormals; integer arithmetic takes no longer than checking for them. Only
factors of products, which would be flushed there, are rounded by the instruction.
"""

from __future__ import annotations

import math

from engine.compiler.codegen.host import Host
from engine.compiler.codegen.ir import Function, Value, constant, lanes_of, vector
from engine.compiler.kernels.functions.arithmetic import absolute, bits, copysign, from_bits, integer, like

FACTOR = "bfloat16 factor"
SIZES = {"float16": 2, "bfloat16": 2, FACTOR: 2}
"""Bytes of an element."""
_SIGN = 0x8000
_INFINITE = 0x7F800000
# Difference of the exponent biases of float32 and float16, and of their fraction bits.
_EXPONENT, _FRACTION = 112, 13
# The first number rounded to infinity in float16, its smallest normal number, and its quiet NaN.
_TOO_LARGE, _NORMAL, _NAN = 0x477FF000, 0x38800000, 0x7E00
_LIMIT = 65520.0


def has_float16(host: Host) -> bool:
    """Return whether the processor has float16 conversions."""
    return "+f16c" in host.features or host.name == "neon"


def from_half(f: Function, x: Value, dtype: str, host: Host) -> Value:
    """Convert the bits of a dtype, as i16, to float32."""
    lanes = lanes_of(x.type)
    if dtype == "float16" and has_float16(host):
        half = f.convert("bitcast", x, vector(lanes, "half"))
        return f.convert("fpext", half, vector(lanes))
    wide = f.convert("zext", x, vector(lanes, "i32"))
    if dtype == "bfloat16":
        return from_bits(f, integer(f, "shl", wide, 16))
    magnitude = integer(f, "shl", integer(f, "and", wide, _SIGN - 1), _FRACTION)
    number = bits(f, f.fmul(from_bits(f, magnitude), like(from_bits(f, magnitude), 2.0**_EXPONENT)))
    is_finite = f.compare("ult", magnitude, constant(0x7C00 << _FRACTION, wide.type))
    number = f.select(is_finite, number, integer(f, "or", magnitude, _INFINITE))
    sign = integer(f, "shl", integer(f, "and", wide, _SIGN), 16)
    return from_bits(f, f.binary("or", number, sign))


def to_half(f: Function, x: Value, dtype: str, host: Host) -> Value:
    """Round float32 to a dtype and return its bits as i16."""
    short = vector(lanes_of(x.type), "i16")
    if dtype == FACTOR and host.has_bfloat16:
        return f.convert("bitcast", f.convert("fptrunc", x, vector(lanes_of(x.type), "bfloat")), short)
    if dtype != "float16":
        return f.convert("trunc", _bfloat16(f, x), short)
    if has_float16(host):
        half = f.convert("fptrunc", x, vector(lanes_of(x.type), "half"))
        return f.convert("bitcast", half, short)
    return f.convert("trunc", _float16(f, x), short)


def round_bfloat16(f: Function, x: Value) -> Value:
    """Emit the nearest bfloat16, as float32."""
    rounded = integer(f, "and", _rounded(f, bits(f, x), 16), -1 << 16)
    return f.select(f.compare("uno", x, x), x, from_bits(f, rounded))


def round_float16(f: Function, x: Value) -> Value:
    """Emit the nearest float16, as float32; infinite from 65520 on."""
    size = absolute(f, x)
    number = from_bits(f, integer(f, "and", _rounded(f, bits(f, size), _FRACTION), -1 << _FRACTION))
    # Near 0.5, float32 has the spacing of float16's subnormals.
    half = like(x, 0.5)
    small = f.fsub(f.fadd(size, half), half)
    number = f.select(f.compare("olt", size, like(x, 2.0**-14)), small, number)
    number = f.select(f.compare("oge", size, like(x, _LIMIT)), like(x, math.inf), number)
    return f.select(f.compare("uno", x, x), x, copysign(f, number, x))


def _bfloat16(f: Function, x: Value) -> Value:
    whole = bits(f, x)
    high = integer(f, "lshr", _rounded(f, whole, 16), 16)
    quiet = integer(f, "or", integer(f, "lshr", whole, 16), 0x40)
    return f.select(f.compare("uno", x, x), quiet, high)


def _float16(f: Function, x: Value) -> Value:
    whole, magnitude = bits(f, x), bits(f, absolute(f, x))
    normal = integer(f, "lshr", _rounded(f, magnitude, _FRACTION), _FRACTION)
    normal = integer(f, "sub", normal, _EXPONENT << 10)
    half = like(x, 0.5)
    small = integer(f, "sub", bits(f, f.fadd(from_bits(f, magnitude), half)), 0x3F000000)
    number = f.select(f.compare("ult", magnitude, constant(_NORMAL, whole.type)), small, normal)
    infinite = constant(_INFINITE >> _FRACTION & 0x7C00, whole.type)
    number = f.select(f.compare("uge", magnitude, constant(_TOO_LARGE, whole.type)), infinite, number)
    number = f.select(f.compare("uno", x, x), constant(_NAN, whole.type), number)
    return f.binary("or", number, integer(f, "and", integer(f, "lshr", whole, 16), _SIGN))


def _rounded(f: Function, x: Value, count: int) -> Value:
    """Add to an integer so that cutting its last ``count`` bits rounds to nearest even."""
    is_odd = integer(f, "and", integer(f, "lshr", x, count), 1)
    return f.binary("add", integer(f, "add", x, (1 << (count - 1)) - 1), is_odd)
