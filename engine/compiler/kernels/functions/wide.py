"""float64 beside float32: where a function needs more bits for a few steps, it takes them here.

Every processor has float64 vectors; a vector of them fills twice the registers.
"""

from __future__ import annotations

import struct

from engine.compiler.codegen.ir import Function, Value, lanes_of, vector

ROUNDER = 1.5 * 2**52
"""What is added to round a float64 below 2**51 to an integer, which the sum's low bits then hold."""


def widened(f: Function, x: Value) -> Value:
    """float32 as float64."""
    return f.convert("fpext", x, vector(lanes_of(x.type), "double"))


def narrowed(f: Function, x: Value) -> Value:
    """float64 rounded to float32."""
    return f.convert("fptrunc", x, vector(lanes_of(x.type)))


def wide(x: Value, number: float) -> Value:
    """A float64 number in as many lanes as ``x`` has."""
    (code,) = struct.unpack("<Q", struct.pack("<d", number))
    text, lanes = f"0x{code:016X}", lanes_of(x.type)
    return Value(text if lanes == 1 else f"<{', '.join([f'double {text}'] * lanes)}>", vector(lanes, "double"))


def wide_bits(f: Function, x: Value) -> Value:
    """The bits of a float64 as an i64."""
    return f.convert("bitcast", x, vector(lanes_of(x.type), "i64"))


def low_bits(f: Function, x: Value) -> Value:
    """The low 32 bits of a float64 as an i32."""
    return f.convert("trunc", wide_bits(f, x), vector(lanes_of(x.type), "i32"))
