"""Rules of the activations, smooth and straight."""

from __future__ import annotations

from collections.abc import Sequence

from engine.compiler.kernels.expr import Expr, apply
from engine.compiler.lowering.terms.registry import Argument, expression_for, per_channel, prepares
from engine.layers.definition.layer import Layer
from engine.layers.elementwise import activation, identity, piecewise

EXP_OVERFLOWS = 88.0
# Beyond it float32 has an infinity, and 0 times that is NaN.
LARGEST = 3.4028234663852886e38
_PLAIN: dict[type[Layer], str] = {
    activation.Sigmoid: "sigmoid",
    activation.SiLU: "silu",
    activation.LogSigmoid: "logsigmoid",
    activation.Tanh: "tanh",
    activation.Tanhshrink: "tanhshrink",
    activation.Softsign: "softsign",
    activation.Mish: "mish",
    activation.SELU: "selu",
    piecewise.ReLU: "relu",
    piecewise.Hardsigmoid: "hardsigmoid",
    piecewise.Hardswish: "hardswish",
}


@expression_for(*_PLAIN)
def plain(layer: Layer, x: Expr) -> Expr:
    """A function of its own name."""
    return apply(_PLAIN[type(layer)], x)


@expression_for(identity.Dropout, identity.Identity, identity.RawIdentity)
def unchanged(layer: Layer, x: Expr, *hints: Expr | None) -> Expr:
    """x"""
    return x


@expression_for(activation.Softplus)
def softplus(layer: activation.Softplus, x: Expr) -> Expr | None:
    """log(1 + exp(beta * x)) / beta; x itself where beta * x > threshold."""
    # Above, the layer's exponential overflows before its threshold is met, and the kernel's does not.
    return apply("softplus", x, layer.beta, layer.threshold) if layer.threshold <= EXP_OVERFLOWS else None


@expression_for(activation.GELU)
def gelu(layer: activation.GELU, x: Expr) -> Expr:
    """Exact, or by PyTorch's tanh approximation."""
    return apply("gelu_tanh" if layer.approximate == "tanh" else "gelu", x)


@expression_for(activation.ELU)
def elu(layer: activation.ELU, x: Expr) -> Expr | None:
    """x where x > 0, else alpha * (exp(x) - 1)."""
    return apply("elu", x, layer.alpha) if abs(layer.alpha) <= LARGEST else None


@expression_for(activation.CELU)
def celu(layer: activation.CELU, x: Expr) -> Expr | None:
    """x where x > 0, else alpha * (exp(x / alpha) - 1)."""
    return apply("celu", x, layer.alpha) if 0 < layer.alpha <= LARGEST else None


@expression_for(piecewise.Hardtanh)
def hardtanh(layer: piecewise.Hardtanh, x: Expr) -> Expr:
    """min(max(x, min_val), max_val)"""
    return apply("clip", x, layer.min_val, layer.max_val)


@expression_for(piecewise.Threshold)
def threshold(layer: piecewise.Threshold, x: Expr) -> Expr:
    """x where x > threshold, else value."""
    return apply("threshold", x, layer.threshold, layer.value)


@expression_for(piecewise.LeakyReLU)
def leaky_relu(layer: piecewise.LeakyReLU, x: Expr) -> Expr:
    """x where x > 0, else negative_slope * x."""
    return apply("leaky_relu", x, layer.negative_slope)


@expression_for(piecewise.RReLU)
def rrelu(layer: piecewise.RReLU, x: Expr) -> Expr:
    """Leaky ReLU with the mean slope."""
    return apply("leaky_relu", x, (layer.lower + layer.upper) / 2)


@prepares(piecewise.PReLU)
def prelu_arguments(layer: piecewise.PReLU, x: Argument, weight: Argument) -> Sequence[Argument] | None:
    """One weight for all, or one for every channel; a constant of the elements of other axes in its shape."""
    shape = layer.slope_shape(x.shape, weight.shape)
    if len(shape) == len(x.shape):
        return None if weight.array is None else (x, Argument(weight.array.reshape(shape)))
    weight_ = per_channel(weight, len(x.shape))
    return None if weight_ is None else (x, weight_)


@expression_for(piecewise.PReLU)
def prelu(layer: piecewise.PReLU, x: Expr, weight: Expr) -> Expr:
    """x where x > 0, else weight * x."""
    return apply("prelu", x, weight)


@expression_for(piecewise.Hardshrink)
def hardshrink(layer: piecewise.Hardshrink, x: Expr) -> Expr:
    """0 where |x| <= lambd, else x."""
    return apply("hardshrink", x, layer.lambd)


@expression_for(piecewise.Softshrink)
def softshrink(layer: piecewise.Softshrink, x: Expr) -> Expr:
    """x moved towards 0 by lambd."""
    return apply("softshrink", x, layer.lambd)
