"""The recurrences themselves: one layer in one direction, a loop over time steps.

The input's product with its weights is taken for all steps at once; what remains in the loop is the hidden state's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.layers.linear.linear import apply_linear
from engine.stopping import wanted
from engine.tensor import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The weights of one layer in one direction; G gates of H units, states of width P.

    Args:
        input_weight, input_bias: (G*H, I) and (G*H,), the bias None where there is none.
        hidden_weight, hidden_bias: (G*H, P) and (G*H,).
        projection: (P, H), None where P is H.
    """

    input_weight: Array
    hidden_weight: Array
    input_bias: Array | None = None
    hidden_bias: Array | None = None
    projection: Array | None = None


def run_lstm(cell: Cell, x: Array, h: Array, c: Array) -> tuple[Array, Array, Array]:
    """i, f, g, o = x @ W.T + h @ U.T + b; c = sigmoid(f) * c + sigmoid(i) * tanh(g); h = sigmoid(o) * tanh(c).

    Args:
        x: (T, B, I).
        h, c: states before the first step, (B, P) and (B, H).

    Returns:
        h of every step (T, B, P), and both states after the last.
    """
    gates = _gates(cell, x)
    outputs = np.empty((len(x), *h.shape), x.dtype)
    recurrent = _transposed(cell.hidden_weight, len(x))
    units = c.shape[1]
    for step, gate in enumerate(wanted(gates)):
        gate += h @ recurrent
        candidate = np.tanh(gate[:, 2 * units : 3 * units])
        _sigmoid(gate)
        c = gate[:, units : 2 * units] * c + gate[:, :units] * candidate
        h = gate[:, 3 * units :] * np.tanh(c)
        if cell.projection is not None:
            h = h @ cell.projection.T
        outputs[step] = h
    return outputs, h, c


def run_gru(cell: Cell, x: Array, h: Array) -> tuple[Array, Array]:
    """r, z = sigmoid(x @ W.T + h @ U.T + b); n = tanh(x @ Wn.T + bn + r * (h @ Un.T + cn)); h = (1 - z) * n + z * h.

    Args:
        x: (T, B, I).
        h: state before the first step, (B, H).

    Returns:
        h of every step (T, B, H), and after the last.
    """
    gates = apply_linear(x, cell.input_weight, cell.input_bias)
    outputs = np.empty((len(x), *h.shape), x.dtype)
    recurrent = _transposed(cell.hidden_weight, len(x))
    units = h.shape[1]
    for step, gate in enumerate(wanted(gates)):
        hidden = h @ recurrent
        if cell.hidden_bias is not None:
            hidden += cell.hidden_bias
        gate[:, : 2 * units] += hidden[:, : 2 * units]
        _sigmoid(gate[:, : 2 * units])
        new = np.tanh(gate[:, 2 * units :] + gate[:, :units] * hidden[:, 2 * units :])
        h = new + gate[:, units : 2 * units] * (h - new)
        outputs[step] = h
    return outputs, h


def run_rnn(cell: Cell, x: Array, h: Array, *, relu: bool) -> tuple[Array, Array]:
    """h = tanh(x @ W.T + h @ U.T + b), or with max(0, .) in place of tanh.

    Args:
        x: (T, B, I).
        h: state before the first step, (B, H).

    Returns:
        h of every step (T, B, H), and after the last.
    """
    outputs = _gates(cell, x)
    recurrent = _transposed(cell.hidden_weight, len(x))
    for step in outputs:
        step += h @ recurrent
        h = np.maximum(step, 0, out=step) if relu else np.tanh(step, out=step)
    return outputs, h


def _gates(cell: Cell, x: Array) -> Array:
    """x @ W.T plus both biases, for all steps: a new array (T, B, G*H)."""
    if cell.input_bias is None or cell.hidden_bias is None:
        return apply_linear(x, cell.input_weight)
    return apply_linear(x, cell.input_weight, cell.input_bias + cell.hidden_bias)


def _transposed(weight: Array, steps: int) -> Array:
    """The weight to multiply small states by; over many steps a copy in BLAS's favourite order pays off."""
    return np.ascontiguousarray(weight.T) if steps > 8 else weight.T


def _sigmoid(x: Array) -> None:
    """1 / (1 + exp(-x)), in place."""
    np.negative(x, out=x)
    np.exp(x, out=x)
    x += 1
    np.reciprocal(x, out=x)
