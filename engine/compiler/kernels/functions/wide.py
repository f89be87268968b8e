"""float64 intermediates for float32 functions that need more bits for a few steps.

Every processor has float64 vectors; they take twice the registers.
"""

from __future__ import annotations

import struct

from engine.compiler.codegen.ir import Function, Value, lanes_of, vector

ROUNDER = 1.5 * 2**52
"""Added to a float64 below 2**51, it rounds to an integer, which is then in the low bits of the sum."""


def widened(f: Function, x: Value) -> Value:
    """Convert float32 to float64."""
    return f.convert("fpext", x, vector(lanes_of(x.type), "double"))


def narrowed(f: Function, x: Value) -> Value:
    """Round float64 to float32."""
    return f.convert("fptrunc", x, vector(lanes_of(x.type)))


def wide(x: Value, number: float) -> Value:
    """Return a float64 constant in as many lanes as ``x``."""
    (code,) = struct.unpack("<Q", struct.pack("<d", number))
    text, lanes = f"0x{code:016X}", lanes_of(x.type)
    return Value(text if lanes == 1 else f"<{', '.join([f'double {text}'] * lanes)}>", vector(lanes, "double"))


def wide_bits(f: Function, x: Value) -> Value:
    """Emit the bits of a float64 as an i64."""
    return f.convert("bitcast", x, vector(lanes_of(x.type), "i64"))


def low_bits(f: Function, x: Value) -> Value:
    """Emit the low 32 bits of a float64 as an i32."""
    return f.convert("trunc", wide_bits(f, x), vector(lanes_of(x.type), "i32"))
