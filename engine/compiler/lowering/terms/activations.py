"""Expression rules of activations, bounds and mixtures, mostly one named function, and of batch normalisation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.compiler.kernels.expr import Expr, apply
from engine.compiler.lowering.terms.functions import LARGEST_FLOAT
from engine.compiler.lowering.terms.term import Argument, expression_for, per_channel, prepares
from engine.layers.definition.layer import Layer
from engine.layers.elementwise import activation, cast, identity, piecewise, ternary
from engine.layers.normalisation.norm import BatchNorm
from engine.tensor import Array

EXP_OVERFLOWS = 88.0
_NAMED: dict[type[Layer], tuple[str, ...]] = {
    activation.Tanhshrink: ("tanhshrink",),
    piecewise.ReLU: ("relu",),
    piecewise.PReLU: ("prelu",),
    piecewise.LeakyReLU: ("leaky_relu", "negative_slope"),
    piecewise.Hardtanh: ("clip", "min_val", "max_val"),
    piecewise.Threshold: ("threshold", "threshold", "value"),
    piecewise.Hardshrink: ("hardshrink", "lambd"),
    piecewise.Softshrink: ("softshrink", "lambd"),
    ternary.Lerp: ("lerp",),
    ternary.AddCMul: ("addcmul",),
    ternary.AddCDiv: ("addcdiv",),
}
"""Layer -> name of its function, and fields that are arguments after its operands."""


@expression_for(*_NAMED)
def named(layer: Layer, *operands: Expr) -> Expr:
    """Return a named function of the operands and of some fields of the layer."""
    function, *fields = _NAMED[type(layer)]
    return apply(function, *operands, *(getattr(layer, field) for field in fields))


@expression_for(identity.Dropout, identity.Identity, identity.RawIdentity, cast.To, cast.TypeAs)
def unchanged(layer: Layer, x: Expr, *others: Expr | None) -> Expr:
    """Return x, also for a cast: a map reads and writes one dtype."""
    return x


@expression_for(activation.Softplus)
def softplus(layer: activation.Softplus, x: Expr) -> Expr | None:
    """Return log(1 + exp(beta * x)) / beta; x itself where beta * x > threshold."""
    # With a larger threshold the layer's exponential overflows below it, and the kernel's does not.
    return apply("softplus", x, layer.beta, layer.threshold) if layer.threshold <= EXP_OVERFLOWS else None


@expression_for(activation.GELU)
def gelu(layer: activation.GELU, x: Expr) -> Expr:
    """Return GELU, exact or by PyTorch's tanh approximation."""
    return apply("gelu_tanh" if layer.approximate == "tanh" else "gelu", x)


@expression_for(activation.ELU)
def elu(layer: activation.ELU, x: Expr) -> Expr | None:
    """Return x where x > 0, else alpha * (exp(x) - 1)."""
    return apply("elu", x, layer.alpha) if abs(layer.alpha) <= LARGEST_FLOAT else None


@expression_for(activation.CELU)
def celu(layer: activation.CELU, x: Expr) -> Expr | None:
    """Return x where x > 0, else alpha * (exp(x / alpha) - 1)."""
    return apply("celu", x, layer.alpha) if 0 < layer.alpha <= LARGEST_FLOAT else None


@expression_for(piecewise.RReLU)
def rrelu(layer: piecewise.RReLU, x: Expr) -> Expr:
    """Return leaky ReLU with the mean slope."""
    return apply("leaky_relu", x, (layer.lower + layer.upper) / 2)


@prepares(piecewise.PReLU)
def prelu_arguments(layer: piecewise.PReLU, x: Argument, weight: Argument) -> Sequence[Argument] | None:
    """Return the weight as one number, a value a channel, or a constant in its own shape."""
    shape = layer.slope_shape(x.shape, weight.shape)
    if len(shape) == len(x.shape):
        return None if weight.array is None else (x, Argument(weight.array.reshape(shape)))
    weight_ = per_channel(weight, len(x.shape))
    return None if weight_ is None else (x, weight_)


@expression_for(ternary.Clamp)
def clamp(layer: ternary.Clamp, x: Expr, low: Expr | None = None, high: Expr | None = None) -> Expr:
    """Return min(max(x, min), max)."""
    if low is not None and high is not None:
        return apply("clip", x, low, high)
    if low is not None:
        return apply("max", x, low)
    return x if high is None else apply("min", x, high)


@prepares(BatchNorm)
def batch_norm_arguments(
    layer: BatchNorm, x: Argument, mean: Argument, var: Argument, weight: Argument, bias: Argument
) -> Sequence[Argument] | None:
    """Return the input, scale and shift; None where a statistic is not known now."""
    given = [each for each in (mean, var, weight, bias) if each.value is not None]
    if mean.array is None or var.array is None or any(each.array is None for each in given):
        return None
    # Folded in float64, because the shift may be a difference of large numbers.
    scale = _as_float64(weight.array, 1.0) / np.sqrt(_as_float64(var.array, 1.0) + layer.eps)
    shift = _as_float64(bias.array, 0.0) - _as_float64(mean.array, 0.0) * scale
    parts = [per_channel(Argument(each.astype(x.dtype)), len(x.shape)) for each in (scale, shift)]
    return None if parts[0] is None or parts[1] is None else (x, parts[0], parts[1])


@expression_for(BatchNorm)
def batch_norm(layer: BatchNorm, x: Expr, scale: Expr, shift: Expr) -> Expr:
    """Return x * scale + shift."""
    return apply("fma", x, scale, shift)


def _as_float64(array: Array | None, default: float) -> Array:
    return np.full(1, default) if array is None else array.astype(np.float64)
