"""Activations."""

from __future__ import annotations

import math

import numpy as np

from engine.errors import ShapeError
from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import Translator, translates
from engine.onnx.translation.value import Value
from engine.onnx.translators.elementwise import literal
from engine.onnx.translators.precision import in_dtype_of, widened
from engine.onnx.translators.shape import as_matrix, reshaped
from engine.tensor import Shape, format_shape, product

_PLAIN = {
    "Relu": "nn.ReLU", "Sigmoid": "nn.Sigmoid", "Tanh": "nn.Tanh", "Softplus": "nn.Softplus",
    "Softsign": "nn.Softsign", "HardSwish": "nn.Hardswish", "Mish": "nn.Mish",
}  # fmt: skip

_ALPHA, _GAMMA = 1.67326319217681884765625, 1.05070102214813232421875


def _plain(type: str) -> Translator:
    def translator(node: Node) -> Value:
        return node.make(type, node.input(0))

    return translator


for _type, _torch in _PLAIN.items():
    translates(_type)(_plain(_torch))


@translates("LeakyRelu")
def leaky_relu(node: Node) -> Value:
    """Translate to nn.LeakyReLU."""
    return node.make("nn.LeakyReLU", node.input(0), negative_slope=node.real("alpha", 0.01))


@translates("Elu")
def elu(node: Node) -> Value:
    """Translate to nn.ELU."""
    return node.make("nn.ELU", node.input(0), alpha=node.real("alpha", 1.0))


@translates("Celu", since=12)
def celu(node: Node) -> Value:
    """Translate to nn.CELU."""
    return node.make("nn.CELU", node.input(0), alpha=node.real("alpha", 1.0))


@translates("Gelu", since=20)
def gelu(node: Node) -> Value:
    """Translate to nn.GELU."""
    return node.make("nn.GELU", node.input(0), approximate=node.text("approximate", "none"))


@translates("HardSigmoid")
def hard_sigmoid(node: Node) -> Value:
    """Translate to nn.Hardsigmoid if alpha and beta are PyTorch's; else to clamp(alpha * x + beta, 0, 1)."""
    x, alpha, beta = node.input(0), node.real("alpha", 0.2), node.real("beta", 0.5)
    if math.isclose(alpha, 1 / 6, rel_tol=1e-5) and beta == 0.5:
        return node.make("nn.Hardsigmoid", x)
    line = node.make("torch.add", node.make("torch.mul", _wide(node, x), other=alpha), other=beta)
    return in_dtype_of(node, node.make("torch.clamp", line, min=0.0, max=1.0), x)


@translates("Selu")
def selu(node: Node) -> Value:
    """Translate to nn.SELU if it has these constants; else to a multiple of nn.ELU."""
    x = node.input(0)
    alpha, gamma = node.real("alpha", _ALPHA if node.version >= 6 else 1.6732), node.real("gamma", _GAMMA)
    if math.isclose(alpha, _ALPHA, rel_tol=1e-6) and math.isclose(gamma, _GAMMA, rel_tol=1e-6):
        return node.make("nn.SELU", x)
    bent = node.make("nn.ELU", _wide(node, x), alpha=alpha)
    return in_dtype_of(node, node.make("torch.mul", bent, other=gamma), x)


@translates("Swish")
def swish(node: Node) -> Value:
    """Translate to nn.SiLU, or to x * sigmoid(alpha * x)."""
    x, alpha = node.input(0), node.real("alpha", 1.0)
    if alpha == 1:
        return node.make("nn.SiLU", x)
    wide = _wide(node, x)
    gate = node.make("nn.Sigmoid", node.make("torch.mul", wide, other=alpha))
    return in_dtype_of(node, node.make("torch.mul", wide, gate), x)


@translates("ThresholdedRelu")
def thresholded_relu(node: Node) -> Value:
    """Translate to x where x > alpha, else 0; NaN becomes 0."""
    x = node.input(0)
    return node.make("torch.where", node.make("torch.gt", x, other=node.real("alpha", 1.0)), x, other=0.0)


@translates("Shrink")
def shrink(node: Node) -> Value:
    """Translate to x + bias where x < -lambd, x - bias where x > lambd, else 0."""
    x, lambd, bias = node.input(0), node.real("lambd", 0.5), node.real("bias", 0.0)
    wide = widened(node, x)
    above = node.make("torch.where", node.make("torch.gt", wide, other=lambd), _plus(node, wide, -bias), other=0.0)
    y = node.make("torch.where", node.make("torch.lt", wide, other=-lambd), _plus(node, wide, bias), above)
    return in_dtype_of(node, y, x)


def _plus(node: Node, x: Value, number: float) -> Value:
    return node.make("torch.add", x, other=number) if number else x


@translates("IsNaN", "IsInf")
def question(node: Node) -> Value:
    """torch.isnan, or torch.isinf of the signs that count."""
    x = node.input(0)
    if x.dtype is not None and x.dtype.kind != "f":
        x = node.make("Tensor.to", x, dtype="torch.float")
    signs = bool(node.number("detect_negative", 1)), bool(node.number("detect_positive", 1))
    if node.type == "IsInf" and not any(signs):
        return node.make("torch.zeros_like", x, dtype="torch.bool")
    types = {(True, True): "torch.isinf", (True, False): "torch.isneginf", (False, True): "torch.isposinf"}
    return node.make("torch.isnan" if node.type == "IsNaN" else types[signs], x)


def _wide(node: Node, x: Value) -> Value:
    return x if x.dtype is None else widened(node, x)


@translates("PRelu")
def prelu(node: Node) -> Value:
    """Translate to nn.PReLU if there is one slope, or one per channel; else to x where x >= 0, slope * x elsewhere."""
    x, slope, rank, size = node.input(0), node.input(1), node.input(0).rank, product(_shape(node.input(1)))
    if node.version < 7 and slope.rank == 1 and rank is not None and rank > 1:
        slope = node.make("Tensor.reshape", slope, shape=(-1, *(1,) * (rank - 2)))  # one per channel
    shape = (1,) * ((rank or 0) - (slope.rank or 0)) + _shape(slope)
    pairs = zip(shape, _shape(x), strict=False)
    if rank is not None and (len(shape) > rank or any(None not in (a, b) and a not in (1, b) for a, b in pairs)):
        raise ShapeError("slope does not fit", found=format_shape(_shape(slope)))
    is_by_channel = rank is not None and rank > 1 and (size == 1 or shape[1] == size)
    if slope.constant is not None and is_by_channel and slope.dtype == x.dtype and slope.constant.dtype.kind != "i":
        weights = {"weight": slope.constant.reshape(-1)}
        return node.make("nn.PReLU", x, weights=weights, num_parameters=size)
    bent = node.make("torch.mul", x, in_dtype_of(node, slope, x))
    return node.make("torch.where", node.make("torch.lt", x, other=0), bent, x)


def _shape(value: Value) -> Shape:
    return () if value.tensor is None else value.tensor.shape


@translates("Clip")
def clip(node: Node) -> Value:
    """Translate to torch.clamp, or to ReLU6; before operator set 11 the bounds are attributes."""
    x = node.input(0)
    if len(node.inputs) == 2 and not node.names_results:
        raise ShapeError("the file does not say whether a lone bound is min or max", expected="both of them")
    bounds = {name: node.optional(k) for k, name in ((1, "min"), (2, "max"))}
    bounds = {name: None if each is None else in_dtype_of(node, each, x) for name, each in bounds.items()}
    numbers = {name: None if each is None else literal(each, x.dtype) for name, each in bounds.items()}
    if all(number is not None or bounds[name] is None for name, number in numbers.items()):
        for name, limit in (("min", -math.inf), ("max", math.inf)):
            if math.isfinite(number := node.real(name, limit)):
                numbers[name] = int(number) if x.dtype is not None and x.dtype.kind in "iu" else number
        low, high = numbers.values()
        if (low, high) == (0.0, 6.0) and isinstance(low, float):
            return node.make("nn.ReLU6", x)
        return x if low is None and high is None else node.make("torch.clamp", x, min=low, max=high)
    given = {name: node.make("torch.squeeze", each) for name, each in bounds.items() if each is not None}
    return node.make("torch.clamp", x, *given.values(), labels=("input", *given))


def _along_axis(type: str, default: int) -> Translator:
    def translator(node: Node) -> Value:
        return node.make(type, node.input(0), dim=node.number("axis", default))

    return translator


translates("Softmax", since=13)(_along_axis("F.softmax", -1))
translates("LogSoftmax", since=13)(_along_axis("F.log_softmax", -1))


@translates("Hardmax", since=13)
def hardmax(node: Node) -> Value:
    """Translate to 1 at the first of the largest elements along an axis, 0 elsewhere."""
    return _hardmax(node, node.input(0), node.number("axis", -1))


def _hardmax(node: Node, x: Value, axis: int) -> Value:
    first = node.make("torch.argmax", x, dim=axis, keepdim=True)
    return node.make("torch.scatter", node.make("torch.zeros_like", x), first, dim=axis, value=1)


@translates("Softmax", "LogSoftmax", "Hardmax")
def of_matrix(node: Node) -> Value:
    """Flatten the input to a matrix at the axis, as operator sets before 13 do."""
    x, axis, spec = node.input(0), node.number("axis", 1), node.input(0).tensor
    type = {"Softmax": "F.softmax", "LogSoftmax": "F.log_softmax"}.get(node.type)
    if spec is not None:
        axis += spec.rank if axis < 0 else 0
        if axis < spec.rank and product(spec.shape[axis + 1 :]) == 1:
            return _hardmax(node, x, axis) if type is None else node.make(type, x, dim=axis)
    matrix = as_matrix(node, x, axis)
    y = _hardmax(node, matrix, 1) if type is None else node.make(type, matrix, dim=1)
    sizes = x.shape_as()
    return node.make("Tensor.reshape_as", y, x) if sizes is None else reshaped(node, y, sizes)


@translates("Dropout")
def dropout(node: Node) -> list[Value]:
    """Return the input, and a mask of ones: dropout is the identity in inference."""
    x, training = node.input(0), node.array(2)
    y = x
    if node.is_given(2) and (training is None or training.any()):
        rate = node.optional(1) or node.constant(np.array(0.5, np.float32))
        y = node.make("onnx.Dropout", x, rate, node.input(2))
    if len(node.outputs) < 2 and node.names_results:
        return [y]
    return node.results([y, node.make("torch.ones_like", x, dtype="torch.bool")], ("the output", "the mask"))


@translates("Identity")
def identity(node: Node) -> Value:
    """Return the input."""
    return node.input(0)
