"""Rounding of h to bytes before a step multiplies it, scaled by the extremes of all rows (dynamic quantisation)."""

from __future__ import annotations

from engine.compiler.codegen.ir import Function, Value, constant, vector
from engine.compiler.kernels.expr import Expr, Operand, apply, emit
from engine.compiler.kernels.folding import fold_lanes
from engine.compiler.kernels.functions.arithmetic import maximum, minimum
from engine.compiler.kernels.functions.math import FUNCTIONS

WIDEST = 255.0


def scale_of(low: Expr, high: Expr) -> Expr:
    """Return the quantisation step for a range that includes 0; 1 for an empty range."""
    wide = apply("div", apply("sub", high, low), WIDEST)
    return apply("where", apply("eq", wide, 0.0), 1.0, wide)


def code_of(value: Expr, zero: Expr | float, low: float = 0.0, high: float = WIDEST) -> Expr:
    """Return the nearest integer, halves to even, plus the zero point, clamped; 0 for NaN."""
    moved = apply("add", apply("round", value), zero)
    return apply("where", apply("eq", moved, moved), apply("min", apply("max", moved, low), high), 0.0)


def zero_of(low: Expr, scale: Expr) -> Expr:
    """Return the zero point."""
    return code_of(apply("div", apply("neg", low), scale), 0.0)


def rounded(x: Expr, scale: Expr, zero: Expr) -> Expr:
    """Quantise and dequantise a number."""
    return apply("mul", apply("sub", code_of(apply("div", x, scale), zero), zero), scale)


def emit_rounding(f: Function, states: Value, rows: int, pitch: int, units: int, lanes: int) -> None:
    """Round rows of whole vectors in place."""
    type_ = vector(lanes)
    nothing = constant(0.0, type_)
    with f.loop(0, rows, carry=[nothing, nothing]) as row:
        line = f.at(states, f.mul(row.index, pitch))
        with f.loop(0, units, lanes, carry=row.carried) as each:
            x, (low, high) = f.load(type_, f.at(line, each.index)), each.carried
            each.carry([minimum(f, low, x), maximum(f, high, x)])
        row.carry(each.results)
    ends = [
        f.splat(fold_lanes(f, value, fold), lanes)
        for value, fold in zip(
            row.results, (lambda f, pair: minimum(f, *pair), lambda f, pair: maximum(f, *pair)), strict=True
        )
    ]
    scale = emit(f, scale_of(Operand(0), Operand(1)), ends, type_, FUNCTIONS)
    zero = emit(f, zero_of(Operand(0), Operand(1)), [ends[0], scale], type_, FUNCTIONS)
    with f.loop(0, rows) as row:
        line = f.at(states, f.mul(row.index, pitch))
        with f.loop(0, units, lanes) as each:
            at = f.at(line, each.index)
            tree = rounded(Operand(0), Operand(1), Operand(2))
            f.store(emit(f, tree, [f.load(type_, at), scale, zero], type_, FUNCTIONS), at)
