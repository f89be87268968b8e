"""Sum, difference and quotient with PyTorch's further arguments, as spelled at optimisation level 0."""

from __future__ import annotations

from typing import Literal

import numpy as np

from engine.expression.elementwise import ELEMENTWISE
from engine.expression.sizes import compute_sizes
from engine.ir.sizes import has_sizes
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.tensor import Array, Number, TensorSpec


class _Scaled(Layer):
    """Base of layers with one operand multiplied by alpha first."""

    takes_sizes = True

    alpha: int | float | complex = 1

    def infer(self, input: TensorSpec | Number, other: TensorSpec | Number) -> object:
        return self._compute(input, other, "infer")

    def forward(self, input: Array | Number, other: Array | Number) -> object:
        with np.errstate(all="ignore"):
            return self._compute(input, other, "evaluate")

    def _compute(self, input: object, other: object, act: str) -> object:
        raise NotImplementedError

    def _scaled(self, operand: object, partner: object, act: str) -> object:
        """Return alpha * operand, in floating point if the other operand is, as a product of integers would wrap."""
        if self.alpha == 1:
            return operand
        if isinstance(operand, int) and isinstance(partner, (np.ndarray, TensorSpec)) and partner.dtype.kind == "f":
            operand = float(operand)
        return getattr(ELEMENTWISE["mul"], act)(operand, self.alpha)


@register("torch.add", positional=("input", "other", "alpha"))
class Add(_Scaled):
    """x + alpha * y."""

    def _compute(self, input: object, other: object, act: str) -> object:
        return getattr(ELEMENTWISE["add"], act)(input, self._scaled(other, input, act))


@register("torch.sub", positional=("input", "other", "alpha"))
class Sub(_Scaled):
    """x - alpha * y."""

    def _compute(self, input: object, other: object, act: str) -> object:
        return getattr(ELEMENTWISE["sub"], act)(input, self._scaled(other, input, act))


@register("torch.div", positional=("input", "other", "rounding_mode"))
class Div(Layer):
    """x / y; rounded down if rounding_mode is floor, towards zero if it is trunc, and then integers stay integers.

    Parameters:
        truncates_integers: round the quotient of integers towards zero, and no other (ONNX).
    """

    takes_sizes = True

    rounding_mode: Literal["floor", "trunc"] | None = None
    truncates_integers: bool = False

    def infer(self, input: TensorSpec | Number, other: TensorSpec | Number) -> object:
        return ELEMENTWISE["div" if self.mode(input, other) is None else "floor_divide"].infer(input, other)

    def forward(self, input: Array | Number, other: Array | Number) -> object:
        mode = self.mode(input, other)
        with np.errstate(all="ignore"):
            if mode == "trunc":
                return self._truncated(input, other)
            return ELEMENTWISE["div" if mode is None else "floor_divide"].evaluate(input, other)

    def mode(self, input: object, other: object) -> str | None:
        """Return how these operands are rounded: down, towards zero, or not."""
        if self.truncates_integers and ELEMENTWISE["floor_divide"].working_dtype(input, other).kind in "iu":
            return "trunc"
        return self.rounding_mode

    def _truncated(self, input: Array | Number, other: Array | Number) -> object:
        if has_sizes((input, other)):
            return compute_sizes("trunc_divide", (input, other))
        if ELEMENTWISE["floor_divide"].working_dtype(input, other).kind not in "iu":
            return ELEMENTWISE["trunc"].evaluate(ELEMENTWISE["div"].evaluate(input, other))
        less = ELEMENTWISE["neg"].evaluate(ELEMENTWISE["fmod"].evaluate(input, other))
        return ELEMENTWISE["floor_divide"].evaluate(ELEMENTWISE["add"].evaluate(input, less), other)
