"""Smooth activations with parameters: softplus, exponential and Gaussian ones. NaN stays NaN."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.creation.container import formula
from engine.layers.definition.composite import CallLayer, Composite
from engine.layers.definition.layer import Annotations
from engine.layers.definition.registry import register
from engine.layers.elementwise.base import UnaryFunction
from engine.layers.elementwise.functions import Unary
from engine.layers.operands.axes import checked_axis
from engine.layers.operands.bounds import at_least, at_most
from engine.layers.operands.precision import widened
from engine.layers.shape.split import Chunk
from engine.promotion import cast, float_dtype
from engine.special import gelu
from engine.tensor import Array


@register("F.tanhshrink")
class Tanhshrink(UnaryFunction):
    """x - tanh(x), with tanh(x) rounded to the input's dtype first, as PyTorch does."""

    def forward(self, input: Array) -> Array:
        with np.errstate(all="ignore"):
            x = widened(input)
            tanh = cast(np.tanh(x), float_dtype(input.dtype))
            return cast(x - widened(tanh), tanh.dtype)


@register("F.softplus")
class Softplus(UnaryFunction):
    """log(1 + exp(beta * x)) / beta; x itself where beta * x > threshold."""

    beta: float = 1.0
    threshold: float = 20.0

    def compute(self, x: Array) -> Array:
        scaled = x * self.beta
        return np.where(scaled > self.threshold, x, np.log1p(np.exp(scaled)) / self.beta)


@register("F.gelu")
class GELU(UnaryFunction):
    """x * P(Z <= x) for a standard normal Z: exact, or by PyTorch's tanh approximation."""

    approximate: Literal["none", "tanh"] = "none"

    def compute(self, x: Array) -> Array:
        if self.approximate == "none":
            return gelu(x)
        return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))))


@register("F.elu")
class ELU(UnaryFunction):
    """x where x > 0, else alpha * (exp(x) - 1)."""

    alpha: float = 1.0

    def compute(self, x: Array) -> Array:
        return _joined(x, self.alpha * np.expm1(at_most(x, 0)), self.alpha)


@register("F.celu")
class CELU(UnaryFunction):
    """x where x > 0, else alpha * (exp(x / alpha) - 1)."""

    alpha: float = 1.0

    def __post_init__(self) -> None:
        if self.alpha == 0:
            raise ParameterError("alpha must not be zero", found=self.alpha)

    def compute(self, x: Array) -> Array:
        return _joined(x, self.alpha * np.expm1(at_most(x, 0) / self.alpha), self.alpha)


@register("F.glu")
class GLU(Composite):
    """First half times sigmoid(second half), along dim.

    Raises:
        ShapeError: when the input is 0-dim or the dimension is odd.
    """

    dim: int = -1

    def compose(self, call: CallLayer, input: Array) -> Any:
        shape = input.shape
        if not shape:
            raise ShapeError("a 0-dim tensor cannot be halved")
        size = shape[checked_axis(self.dim, len(shape))]
        if (size or 0) % 2:
            raise ShapeError(f"dimension {self.dim} cannot be halved", found=size, expected="an even size")
        halves = Chunk(chunks=2, dim=self.dim, annotations=Annotations(outputs=(None, None)))
        values, gates = call(halves, input)
        return formula(call, "mul(@0,@1)", values, call(Unary(function="sigmoid"), gates))


def _joined(x: Array, below: Array, alpha: float) -> Array:
    """Compute max(x, 0) + below; if alpha is not finite, ``below`` is not 0 where x >= 0, and is selected instead."""
    return at_least(x, 0) + below if np.isfinite(cast(alpha, x.dtype)) else np.where(x >= 0, x, below)
