"""Recurrences: one layer in one direction, a loop over time steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from engine.cancellation import cancellable
from engine.errors import ParameterError
from engine.tensor import Array

Activation: TypeAlias = Callable[[Array], Array]
Step = Callable[..., Sequence[Array]]
"""Function of a cell, the input of one step and the states before it; returns the states after it."""

Rounds: TypeAlias = Literal["", "each", "all"]
"""Rows that are rounded to bytes of their range: none, each of its own range, all of one range."""


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _elu(x: Array, alpha: float) -> Array:
    return np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x)


# name -> (default alpha, default beta, function)
_ACTIVATIONS: Final[dict[str, tuple[float, float, Callable[[Array, float, float], Any]]]] = {
    "relu": (0, 0, lambda x, a, b: np.maximum(x, 0)),
    "tanh": (0, 0, lambda x, a, b: np.tanh(x)),
    "sigmoid": (0, 0, lambda x, a, b: _sigmoid(x)),
    "affine": (1, 0, lambda x, a, b: a * x + b),
    "leakyrelu": (0.01, 0, lambda x, a, b: np.where(x < 0, a * x, x)),
    "thresholdedrelu": (1, 0, lambda x, a, b: np.where(x > a, x, 0)),
    "scaledtanh": (1, 1, lambda x, a, b: a * np.tanh(b * x)),
    "hardsigmoid": (0.2, 0.5, lambda x, a, b: np.clip(a * x + b, 0, 1)),
    "elu": (1, 0, lambda x, a, b: _elu(x, a)),
    "softsign": (0, 0, lambda x, a, b: x / (1 + np.abs(x))),
    "softplus": (0, 0, lambda x, a, b: np.logaddexp(x, 0)),
}


def activation(name: str, alphas: Any, betas: Any) -> Activation:
    """Return a function by name; it takes its alpha and beta from the file's lists.

    Raises:
        ParameterError: there is no such function.
    """
    known = _ACTIVATIONS.get(name.lower())
    if known is None:
        raise ParameterError("unknown activation", found=name, expected=", ".join(_ACTIVATIONS))
    alpha, beta, function = known
    a = float(next(alphas, alpha)) if alpha else alpha
    b = float(next(betas, beta)) if beta or name.lower() == "affine" else beta
    return lambda x: np.asarray(function(x, a, b), x.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The weights of one layer in one direction; G gates of H units, states of width P.

    Args:
        input_weight, input_bias: (G*H, I) and (G*H,), the bias None where there is none.
        hidden_weight, hidden_bias: (G*H, P) and (G*H,).
        projection: (P, H), None if P is H.
        peepholes: (3*H,), what the gates i, f and o of an LSTM take of c; None for nothing.
        activations: of the gates, of the new value, and of an LSTM's c.
        clip: bound of the activations' inputs, None for none.
        rounds: as in ``Recurrent``, of the state before it is multiplied.
    """

    input_weight: Array
    hidden_weight: Array
    input_bias: Array | None = None
    hidden_bias: Array | None = None
    projection: Array | None = None
    peepholes: Array | None = None
    activations: Sequence[Activation]
    clip: float | None = None
    rounds: Rounds = ""

    def of_input(self, x: Array) -> Array:
        """Compute x @ W.T + b of all gates."""
        return _product(x, self.input_weight, self.input_bias)

    def of_state(self, h: Array) -> Array:
        """Compute h @ U.T + b of all gates."""
        return _product(rounded(h, self.rounds), self.hidden_weight, self.hidden_bias)

    def act(self, index: int, x: Array) -> Array:
        """Compute an activation."""
        return self.activations[index](x if self.clip is None else np.clip(x, -self.clip, self.clip))


def scan(step: Step, cell: Cell, x: Array, states: Sequence[Array], lengths: Array) -> tuple[Array, Sequence[Array]]:
    """Run a recurrence over the steps of each sequence, up to its length.

    Args:
        x: (T, B, I).
        states: before the first step, (B, width).

    Returns:
        the first state of every step (T, B, P), zeros after a sequence's end, and all states after the last.
    """
    output = np.zeros((len(x), *states[0].shape), states[0].dtype)
    for t, each in enumerate(cancellable(x)):
        is_on = (t < lengths)[:, None]
        new = step(cell, each, *states)
        states = [np.where(is_on, after, before) for after, before in zip(new, states, strict=True)]
        output[t] = np.where(is_on, states[0], 0)
    return output, states


def reversed_steps(x: Array, lengths: Array) -> Array:
    """Reverse each sequence of (T, B, ...) up to its length; keep the rest."""
    step = np.arange(len(x))[:, None]
    source = np.where(step < lengths, lengths - 1 - step, step)
    return np.asarray(np.take_along_axis(x, source.reshape(*source.shape, *(1,) * (x.ndim - 2)), axis=0))


def lstm_step(cell: Cell, x: Array, h: Array, c: Array, *, couples_gates: bool) -> Sequence[Array]:
    """Compute i, f, g, o = x @ W.T + h @ U.T + b; c = sigmoid(f) * c + sigmoid(i) * tanh(g); h = sigmoid(o) * tanh(c).

    Args:
        couples_gates: use 1 - sigmoid(i) for sigmoid(f).
    """
    i, f, g, o = _gates(cell.of_input(x) + cell.of_state(h), 4)
    p, q, r = (0, 0, 0) if cell.peepholes is None else np.split(cell.peepholes, 3)
    i = cell.act(0, i + p * c)
    f = 1 - i if couples_gates else cell.act(0, f + q * c)
    c = f * c + i * cell.act(1, g)
    h = cell.act(0, o + r * c) * cell.activations[2](c)
    return [h if cell.projection is None else h @ cell.projection.T, c]


def gru_step(cell: Cell, x: Array, h: Array, *, resets_first: bool) -> Sequence[Array]:
    """Compute r, z = sigmoid(x @ W.T + h @ U.T + b), n = tanh(x @ Wn.T + bn + r*(h @ Un.T + cn)), h = (1-z)*n + z*h.

    Args:
        resets_first: use (r*h) @ Un.T + cn for r*(h @ Un.T + cn).
    """
    gates, inner = _gates(cell.of_input(x), 3), _gates(cell.of_state(h), 3)
    r, z = (cell.act(0, mine + theirs) for mine, theirs in zip(gates[:2], inner[:2], strict=True))
    reset = _gates(cell.of_state(r * h), 3)[2] if resets_first else r * inner[2]
    n = cell.act(1, gates[2] + reset)
    return [(1 - z) * n + z * h]


def rnn_step(cell: Cell, x: Array, h: Array) -> Sequence[Array]:
    """Compute h = tanh(x @ W.T + h @ U.T + b)."""
    return [cell.act(0, cell.of_input(x) + cell.of_state(h))]


def rounded(x: Array, rounds: Rounds) -> Array:
    """Round to 255 steps over the range of the extremes and zero, halves to even: that of each row, or of all."""
    if not rounds or not x.size:
        return x
    axis = -1 if rounds == "each" else None
    low = np.minimum(x.min(axis, keepdims=True), 0)
    scale = (np.maximum(x.max(axis, keepdims=True), 0) - low) / x.dtype.type(255)
    scale = np.where(scale == 0, x.dtype.type(1), scale)
    zero = np.clip(np.rint(-low / scale), 0, 255)
    return np.asarray((np.clip(np.rint(x / scale) + zero, 0, 255) - zero) * scale)


def _gates(x: Array, count: int) -> list[Array]:
    """Split (B, count * H) into (B, H) each."""
    size = x.shape[1] // count
    return [x[:, k * size : (k + 1) * size] for k in range(count)]


def _product(x: Array, weight: Array, bias: Array | None) -> Array:
    """Compute x @ weight.T + bias."""
    return x @ weight.T if bias is None else x @ weight.T + bias
