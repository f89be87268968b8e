"""Largest absolute value of a matrix, by integer comparison of bits: infinity exceeds numbers, NaN exceeds infinity."""

from __future__ import annotations

import math

from engine.compiler.codegen.ir import Function, Index, Value, constant, mangled, vector
from engine.compiler.kernels.functions.arithmetic import bits, from_bits, integer


def nothing(lanes: int) -> Value:
    """Return the start value of ``larger``."""
    return constant(0, vector(lanes, "i32"))


def larger(f: Function, carried: Value, at: Value, count: int, lanes: int) -> Value:
    """Emit the maximum of ``carried`` and the absolute values of ``count`` numbers, as bits."""
    magnitude = integer(f, "and", bits(f, f.load_lanes(vector(lanes), at, count)), 0x7FFFFFFF)
    return f.intrinsic("umax", carried, magnitude)


def largest(f: Function, carried: Value) -> Value:
    """Emit the largest absolute value of all lanes; NaN if one is NaN."""
    return from_bits(f, f.call(f"llvm.vector.reduce.umax.{mangled(carried.type)}", [carried], "i32"))


def largest_of(f: Function, base: Value, pitch: int, rows: Index, columns: int, *, lanes: int) -> Value:
    """Emit the largest absolute value in some rows; NaN if one is NaN."""
    with f.loop(0, rows, carry=[nothing(lanes)]) as row:
        line, carried = f.at(base, f.mul(row.index, pitch)), row.carried[0]
        for column in range(0, columns, lanes):
            carried = larger(f, carried, f.at(line, column), min(lanes, columns - column), lanes)
        row.carry([carried])
    return largest(f, row.results[0])


def is_finite(f: Function, magnitude: Value) -> Value:
    """Emit whether a largest absolute value is finite."""
    return f.compare("olt", magnitude, constant(math.inf, "float"))
