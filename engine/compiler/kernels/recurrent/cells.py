"""Cells: the new state of a step from its gates.

Source: the formulas in engine.layers.recurrent.cells.
"""

from __future__ import annotations

from typing import Final, Literal

from engine.compiler.codegen.ir import Function, Value, element_of
from engine.compiler.kernels.functions.activation import FLOATS, Smooth, relu
from engine.compiler.kernels.functions.double_activation import DOUBLES

CellKind = Literal["lstm", "gru", "tanh", "relu"]
"""LSTM with gates i, f, g, o; GRU with r, z, n; plain recurrence with one of two activations."""
GATES: Final[dict[CellKind, int]] = {"lstm": 4, "gru": 3, "tanh": 1, "relu": 1}


def _of(x: Value) -> Smooth:
    """Return the activation functions of float32 or float64."""
    return DOUBLES if element_of(x.type) == "double" else FLOATS


def lstm(f: Function, gates: list[Value], c: Value) -> tuple[Value, Value]:
    """Return the new h, before a projection, and the new c; a product of two activations takes one division."""
    i, forget, g, o = gates
    kept = f.fdiv(c, _of(c).one_plus_exp_minus(f, forget))
    c = f.fadd(kept, _sigmoid_times_tanh(f, i, g))
    return _sigmoid_times_tanh(f, o, c), c


def _sigmoid_times_tanh(f: Function, x: Value, y: Value) -> Value:
    numerator, denominator = _of(y).tanh_parts(f, y)
    return f.fdiv(numerator, f.fmul(denominator, _of(x).one_plus_exp_minus(f, x)))


def gru(f: Function, gates: list[Value], input: Value, h: Value) -> Value:
    """Return the new h.

    Args:
        gates: the last is the hidden part of n.
        input: the input part of n.
    """
    r, z, n = gates
    own = _of(h)
    new = own.tanh(f, f.fma(own.sigmoid(f, r), n, input))
    return f.fma(own.sigmoid(f, z), f.fsub(h, new), new)


def plain(f: Function, kind: CellKind, gate: Value) -> Value:
    """Return the new h."""
    return relu(f, gate) if kind == "relu" else _of(gate).tanh(f, gate)
