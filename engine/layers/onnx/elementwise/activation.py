"""Activations, and other functions of single elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from engine.errors import ShapeError
from engine.layers.definition.layer import NO_ANNOTATIONS, Annotations, Layer
from engine.layers.definition.registry import register
from engine.layers.elementwise.activation import CELU, ELU, GELU, SELU, Mish, Softplus, Softsign
from engine.layers.elementwise.base import Elementwise, UnaryFunction
from engine.layers.elementwise.identity import Identity
from engine.layers.elementwise.piecewise import Hardswish, LeakyReLU, ReLU
from engine.layers.elementwise.ternary import Clamp
from engine.layers.normalisation.softmax import LogSoftmax, Softmax
from engine.layers.onnx.operands.adapter import UnaryAdapter, as_tensor, present, selected, shape_of
from engine.layers.operands.axes import checked_axis, may_match
from engine.layers.operands.precision import widened
from engine.promotion import broadcast_shapes, cast
from engine.tensor import Array, DType, Number, TensorSpec, format_shape, spec_of

_BOOL: DType = np.dtype(np.bool_)

register("Relu")(ReLU)
register("LeakyRelu", renamed={"alpha": "negative_slope"})(LeakyReLU)
register("Elu")(ELU)
register("Celu")(CELU)
register("Gelu")(GELU)
register("HardSwish")(Hardswish)
register("Mish")(Mish)
register("Softplus")(Softplus)
register("Softsign")(Softsign)


@register("Selu")
class OnnxSelu(UnaryAdapter):
    """gamma * (x where x > 0, else alpha * (exp(x) - 1))."""

    canonical_layers = (SELU,)

    alpha: float = 1.67326319217681884765625
    gamma: float = 1.05070102214813232421875

    def canonical(self, input: TensorSpec) -> Layer:
        is_usual = math.isclose(self.alpha, 1.6732632, rel_tol=1e-6) and math.isclose(
            self.gamma, 1.0507010, rel_tol=1e-6
        )
        return SELU() if is_usual else _ScaledElu(alpha=self.alpha, gamma=self.gamma)


class _ScaledElu(UnaryFunction):
    alpha: float
    gamma: float

    def compute(self, x: Array) -> Array:
        return np.asarray(np.where(x > 0, x, self.alpha * np.expm1(np.minimum(x, 0))) * x.dtype.type(self.gamma))


@register("HardSigmoid")
class OnnxHardSigmoid(UnaryFunction):
    """min(max(alpha * x + beta, 0), 1)"""

    alpha: float = 0.2
    beta: float = 0.5

    def compute(self, x: Array) -> Array:
        return np.asarray(np.clip(x * x.dtype.type(self.alpha) + x.dtype.type(self.beta), 0, 1))


@register("Swish")
class Swish(UnaryFunction):
    """x / (1 + exp(-alpha * x))"""

    alpha: float = 1.0

    def compute(self, x: Array) -> Array:
        return np.asarray(x / (1 + np.exp(-(x * x.dtype.type(self.alpha)))))


@register("ThresholdedRelu")
class ThresholdedRelu(UnaryFunction):
    """x where x > alpha, else 0."""

    alpha: float = 1.0

    def compute(self, x: Array) -> Array:
        return np.where(x > x.dtype.type(self.alpha), x, x.dtype.type(0))


@register("Shrink")
class Shrink(Elementwise):
    """x + bias where x < -lambd, x - bias where x > lambd, else 0."""

    lambd: float = 0.5
    bias: float = 0.0

    def forward(self, input: Array) -> Array:
        x = widened(input)
        with np.errstate(all="ignore"):
            outside = np.where(x > self.lambd, x - x.dtype.type(self.bias), x.dtype.type(0))
            return cast(np.where(x < -self.lambd, x + x.dtype.type(self.bias), outside), input.dtype)


@register("PRelu", positional=("input", "slope"))
class OnnxPRelu(Layer):
    """x where x >= 0, else slope * x; the slope broadcasts to x."""

    def infer(self, input: TensorSpec, slope: Any) -> TensorSpec:
        shape = broadcast_shapes(input.shape, shape_of(slope))
        if not may_match(shape, input.shape):
            raise ShapeError("slope does not fit", found=format_shape(shape_of(slope)))
        return input

    def forward(self, input: Array, slope: Array | Number) -> Array:
        self.infer(TensorSpec(input.shape, input.dtype), slope)
        x = widened(input) if input.dtype.kind not in "iu" else input
        with np.errstate(all="ignore"):
            bent = x * cast(as_tensor(slope, input.dtype, "slope"), x.dtype)
            return cast(np.where(x < 0, bent, x), input.dtype)


@register("Clip", positional=("input", "min", "max"))
class Clip(Layer):
    """min(max(x, min), max), of those bounds that are given."""

    def infer(
        self, input: TensorSpec, min: TensorSpec | Number | None = None, max: TensorSpec | Number | None = None
    ) -> TensorSpec:
        if isinstance(min, TensorSpec) and max is None:
            raise ShapeError("the file does not say whether a lone bound is min or max", expected="both of them")
        return input

    def forward(self, input: Array, min: Array | Number | None = None, max: Array | Number | None = None) -> Array:
        self.infer(*(spec_of(each) for each in (input, min, max)))  # type: ignore[arg-type]
        bounds = [None if each is None else cast(each, input.dtype) for each in (min, max)]
        if any(bound is not None and bound.size != 1 for bound in bounds):
            raise ShapeError("a bound is not one number", found=[None if b is None else b.shape for b in bounds])
        if bounds == [None, None]:
            return input
        return Clamp().forward(input, *(None if bound is None else bound.reshape(()) for bound in bounds))


class _AlongAxis(UnaryAdapter):
    """Base of operators along an axis, the last one unless the file says another."""

    axis: int = -1


@register("Softmax")
class OnnxSoftmax(_AlongAxis):
    """exp(x) / sum(exp(x)) along an axis."""

    canonical_layers = (Softmax,)

    def canonical(self, input: TensorSpec) -> Layer:
        return Softmax(dim=checked_axis(self.axis, input.rank))


@register("LogSoftmax")
class OnnxLogSoftmax(_AlongAxis):
    """x - log(sum(exp(x))) along an axis."""

    canonical_layers = (LogSoftmax,)

    def canonical(self, input: TensorSpec) -> Layer:
        return LogSoftmax(dim=checked_axis(self.axis, input.rank))


@register("Hardmax")
class Hardmax(Elementwise):
    """1 at the first of the largest elements along an axis, 0 elsewhere."""

    axis: int = -1

    def infer(self, input: TensorSpec, *others: object) -> TensorSpec:
        checked_axis(self.axis, input.rank)
        return input

    def forward(self, input: Array) -> Array:
        row, axis = np.atleast_1d(input), checked_axis(self.axis, input.ndim)
        result = np.zeros(row.shape, row.dtype)
        if row.size:
            first = np.expand_dims(widened(row).argmax(axis), axis)
            np.put_along_axis(result, first, cast(1, row.dtype), axis)
        return result.reshape(input.shape)


register("Identity")(Identity)


@register("Dropout", positional=("input", "ratio", "training_mode"), ignored=("seed", "is_test"))
class OnnxDropout(Layer):
    """The input itself, and that every element of it was kept: models are run, not trained."""

    ratio: Any = 0.5
    training_mode: Any = False
    annotations: Annotations = NO_ANNOTATIONS

    def infer(self, input: TensorSpec) -> Any:
        results = (input, TensorSpec(input.shape, _BOOL))
        return selected(results, present(results, self.annotations))

    def forward(self, input: Array) -> Any:
        specs = [TensorSpec(input.shape, dtype) for dtype in (input.dtype, _BOOL)]
        if np.any(np.asarray(self.training_mode, np.bool_)) and np.any(np.asarray(self.ratio) != 0):
            raise ShapeError("dropout at random is for training", found="training_mode = 1", expected="0")
        return selected((input, np.ones(input.shape, np.bool_)), present(specs, self.annotations))


@register("IsNaN")
class IsNaN(Layer):
    """Whether an element is not a number."""

    def infer(self, input: TensorSpec) -> TensorSpec:
        return TensorSpec(input.shape, _BOOL)

    def forward(self, input: Array) -> Array:
        return np.asarray(widened(input) != widened(input))


@register("IsInf")
class IsInf(Layer):
    """Whether an element is infinite, of the signs that count."""

    detect_negative: bool = True
    detect_positive: bool = True

    def infer(self, input: TensorSpec) -> TensorSpec:
        return TensorSpec(input.shape, _BOOL)

    def forward(self, input: Array) -> Array:
        x = widened(input)
        return np.asarray((self.detect_positive & (x == np.inf)) | (self.detect_negative & (x == -np.inf)))
