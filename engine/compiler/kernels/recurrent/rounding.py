"""Rounding of h to bytes before a step multiplies it, scaled by the extremes of all rows (dynamic quantisation)."""

from __future__ import annotations

from engine.compiler.codegen.ir import Function, Value, constant, vector
from engine.compiler.kernels.expr import Operand, emit
from engine.compiler.kernels.folding import fold_lanes
from engine.compiler.kernels.functions.arithmetic import maximum, minimum
from engine.compiler.kernels.functions.math import FUNCTIONS
from engine.compiler.kernels.quantising import rounded, scale_of, zero_of


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
