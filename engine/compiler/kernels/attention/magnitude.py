"""The largest magnitude in a matrix: of bits as integers, infinity's are above those of numbers, and NaN's above it."""

from __future__ import annotations

import math

from engine.compiler.codegen.ir import Function, Index, Value, constant, mangled, vector
from engine.compiler.kernels.functions.arithmetic import bits, from_bits, integer


def nothing(lanes: int) -> Value:
    """The bits that ``larger`` begins with."""
    return constant(0, vector(lanes, "i32"))


def larger(f: Function, carried: Value, at: Value, count: int, lanes: int) -> Value:
    """The bits of the larger magnitudes, of those so far and of ``count`` numbers."""
    magnitude = integer(f, "and", bits(f, f.load_lanes(vector(lanes), at, count)), 0x7FFFFFFF)
    return f.intrinsic("umax", carried, magnitude)


def largest(f: Function, carried: Value) -> Value:
    """The largest magnitude of all lanes; NaN if one is."""
    return from_bits(f, f.call(f"llvm.vector.reduce.umax.{mangled(carried.type)}", [carried], "i32"))


def largest_of(f: Function, base: Value, pitch: int, rows: Index, columns: int, *, lanes: int) -> Value:
    """The largest magnitude in some rows; NaN if one is."""
    with f.loop(0, rows, carry=[nothing(lanes)]) as row:
        line, carried = f.at(base, f.mul(row.index, pitch)), row.carried[0]
        for column in range(0, columns, lanes):
            carried = larger(f, carried, f.at(line, column), min(lanes, columns - column), lanes)
        row.carry([carried])
    return largest(f, row.results[0])


def is_finite(f: Function, magnitude: Value) -> Value:
    """Whether a largest magnitude is one of numbers."""
    return f.compare("olt", magnitude, constant(math.inf, "float"))
