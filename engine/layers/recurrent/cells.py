"""The recurrences themselves: one layer in one direction, a loop over time steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.cancellation import cancellable
from engine.tensor import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The weights of one layer in one direction; G gates of H units, states of width P.

    Args:
        input_weight, input_bias: (G*H, I) and (G*H,), the bias None where there is none.
        hidden_weight, hidden_bias: (G*H, P) and (G*H,).
        projection: (P, H), None if P is H.
    """

    input_weight: Array
    hidden_weight: Array
    input_bias: Array | None = None
    hidden_bias: Array | None = None
    projection: Array | None = None


def run_lstm(cell: Cell, x: Array, h: Array, c: Array) -> tuple[Array, Array, Array]:
    """Compute i, f, g, o = x @ W.T + h @ U.T + b; c = sigmoid(f) * c + sigmoid(i) * tanh(g); h = sigmoid(o) * tanh(c).

    Args:
        x: (T, B, I).
        h, c: states before the first step, (B, P) and (B, H).

    Returns:
        h of every step (T, B, P), and both states after the last.
    """
    outputs = []
    for step in cancellable(x):
        i, f, g, o = _gates(_product(step, cell.input_weight, cell.input_bias) + _of_state(cell, h), 4)
        c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
        h = _sigmoid(o) * np.tanh(c)
        if cell.projection is not None:
            h = h @ cell.projection.T
        outputs.append(h)
    return np.stack(outputs), h, c


def run_gru(cell: Cell, x: Array, h: Array) -> tuple[Array, Array]:
    """Compute r, z = sigmoid(x @ W.T + h @ U.T + b), n = tanh(x @ Wn.T + bn + r*(h @ Un.T + cn)), h = (1-z)*n + z*h.

    Args:
        x: (T, B, I).
        h: state before the first step, (B, H).

    Returns:
        h of every step (T, B, H), and after the last.
    """
    outputs = []
    for step in cancellable(x):
        gates = _gates(_product(step, cell.input_weight, cell.input_bias), 3)
        inner = _gates(_of_state(cell, h), 3)
        r, z = (_sigmoid(mine + theirs) for mine, theirs in zip(gates[:2], inner[:2], strict=True))
        n = np.tanh(gates[2] + r * inner[2])
        h = (1 - z) * n + z * h
        outputs.append(h)
    return np.stack(outputs), h


def run_rnn(cell: Cell, x: Array, h: Array, *, relu: bool) -> tuple[Array, Array]:
    """Compute h = tanh(x @ W.T + h @ U.T + b), or with max(0, .) in place of tanh.

    Args:
        x: (T, B, I).
        h: state before the first step, (B, H).

    Returns:
        h of every step (T, B, H), and after the last.
    """
    outputs = []
    for step in cancellable(x):
        gate = _product(step, cell.input_weight, cell.input_bias) + _of_state(cell, h)
        h = np.maximum(gate, 0) if relu else np.tanh(gate)
        outputs.append(h)
    return np.stack(outputs), h


def _gates(x: Array, count: int) -> list[Array]:
    """Split (B, count * H) into (B, H) each."""
    size = x.shape[1] // count
    return [x[:, k * size : (k + 1) * size] for k in range(count)]


def _of_state(cell: Cell, h: Array) -> Array:
    """Compute h @ U.T + b of all gates."""
    return _product(h, cell.hidden_weight, cell.hidden_bias)


def _product(x: Array, weight: Array, bias: Array | None) -> Array:
    """Compute x @ weight.T + bias."""
    return x @ weight.T if bias is None else x @ weight.T + bias


def _sigmoid(x: Array) -> Array:
    """Compute 1 / (1 + exp(-x))."""
    return np.asarray(1 / (1 + np.exp(-x)))
