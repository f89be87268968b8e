"""Activations of recurrent networks, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np

from engine.errors import ParameterError
from engine.tensor import Array

Activation: TypeAlias = Callable[[Array], Array]


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
