"""Element-wise operators: arithmetic, activations, comparisons, logic and casts."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

import numpy as np

from engine.expression.elementwise import ELEMENTWISE
from engine.layers.elementwise import (
    activation,
    arithmetic,
    cast,
    comparison,
    functions,
    identity,
    logical,
    mathematics,
    piecewise,
    ternary,
)
from engine.onnx_writing.registry import writes
from engine.onnx_writing.rules.functions import (
    FUNCTIONS,
    Function,
    evaluate,
    expm1,
    is_negative,
    node,
    sign,
    truncated_quotient,
    where,
    write_in,
)
from engine.onnx_writing.value import Operand, Value, promoted
from engine.onnx_writing.writer import BOOL, FLOAT32, FLOAT64, INT64, Writer
from engine.promotion import float_dtype
from engine.tensor import Number


@writes(functions.Unary, functions.Binary)
def named(to: Writer, layer: functions.Unary | functions.Binary, *operands: Operand) -> Value:
    return evaluate(to, functions.DEFINITIONS[layer.function], *operands)


@writes(arithmetic.Add, arithmetic.Sub)
def add(to: Writer, layer: arithmetic.Add | arithmetic.Sub, input: Operand, other: Operand) -> Value:
    function = "add" if isinstance(layer, arithmetic.Add) else "sub"
    return evaluate(to, ELEMENTWISE[function], input, _scaled(to, layer.alpha, other, input))


def _scaled(to: Writer, alpha: Number, operand: Operand, partner: Operand) -> Operand:
    if alpha == 1:
        return operand
    if isinstance(operand, int) and isinstance(partner, Value) and partner.dtype.kind == "f":
        operand = float(operand)
    return evaluate(to, ELEMENTWISE["mul"], operand, alpha) if isinstance(operand, Value) else operand * alpha


@writes(arithmetic.Div)
def div(to: Writer, layer: arithmetic.Div, input: Operand, other: Operand) -> Value:
    mode = layer.mode(promoted(input), promoted(other))
    if mode != "trunc":
        return evaluate(to, ELEMENTWISE["div" if mode is None else "floor_divide"], input, other)
    operands, dtype = to.common(input, other)
    return write_in(to, truncated_quotient, operands, dtype)


@writes(comparison.Comparison, is_exact=True)
def compare(to: Writer, layer: comparison.Comparison, input: Operand, other: Operand) -> Value:
    operands, _ = to.common(input, other)
    answer = to.op(_COMPARISONS[layer.function], *operands)
    return ~answer if layer.function == "ne" else answer


_COMPARISONS: Final = {
    "eq": "Equal", "ne": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual",
}  # fmt: skip


@writes(comparison.Predicate, is_exact=True)
def predicate(to: Writer, layer: comparison.Predicate, input: Value) -> Value:
    if input.dtype.kind != "f" and layer.function in _OF_FLOATS or layer.function == "isreal":
        same = to.op("Equal", input, input)
        return same if layer.function in ("isfinite", "isreal") else ~same
    return _PREDICATES[layer.function](input)


_OF_FLOATS: Final = ("isnan", "isinf", "isfinite", "isposinf", "isneginf")
_PREDICATES: Final[dict[str, Function]] = {
    "isnan": node("IsNaN"), "isinf": node("IsInf"), "isfinite": lambda x: node("Abs")(x) < math.inf,
    "isposinf": node("IsInf", detect_negative=0), "isneginf": node("IsInf", detect_positive=0),
    "logical_not": lambda x: ~truth(x), "signbit": lambda x: x & ~x if x.dtype == BOOL else is_negative(x),
}  # fmt: skip


def truth(x: Value) -> Value:
    """Return whether elements are not zero; NaN is not."""
    return x.to.cast(x, BOOL)


@writes(comparison.IsClose)
def is_close(to: Writer, layer: comparison.IsClose, input: Value, other: Value) -> Value:
    wide = np.promote_types(input.dtype, FLOAT32)
    x, y = to.cast(input, wide), to.cast(other, wide)
    distance = to.op("Abs", x - y)
    close = to.op("Equal", x, y) | (distance < math.inf) & (distance <= to.op("Abs", y) * layer.rtol + layer.atol)
    return close | to.op("IsNaN", x) & to.op("IsNaN", y) if layer.equal_nan else close


@writes(logical.Logical)
def logical_(to: Writer, layer: logical.Logical, input: Operand, other: Operand) -> Value:
    x, y = (truth(to.tensor(each)) for each in (input, other))
    return to.op(layer.function.removeprefix("logical_").capitalize(), x, y)


@writes(logical.BitwiseNot)
def bitwise_not(to: Writer, layer: logical.BitwiseNot, input: Value) -> Value:
    return node("BitwiseNot", "Not")(input)


# Casts and copies


@writes(cast.To)
def cast_to(to: Writer, layer: cast.To, input: Operand) -> Operand:
    if layer.dtype is None:
        return input
    made = to.cast(to.tensor(input), layer.dtype)
    return replace(made, is_number=made.is_number and layer.dtype in (INT64, BOOL))


@writes(cast.TypeAs)
def type_as(to: Writer, layer: cast.TypeAs, input: Value, other: Value) -> Value:
    return to.cast(input, other.dtype)


@writes(identity.Identity, identity.RawIdentity)
def same(to: Writer, layer: Any, input: Value, *others: object) -> Value:
    return input


@writes(identity.Dropout)
def dropout(to: Writer, layer: identity.Dropout, input: Value) -> Value:
    if layer.training and layer.p > 0:
        to.refuse("random dropout is for training", "export the model in evaluation mode")
    return input


# Activations


def activation_(to: Writer, layer: Any, input: Value) -> Value:
    answer: Value = _ACTIVATIONS[type(layer)](layer, to.cast(input, float_dtype(input.dtype)))
    return answer


def _softplus(layer: activation.Softplus, x: Value) -> Value:
    scaled = x if layer.beta == 1 else x * layer.beta
    soft = node("Softplus")(scaled)
    if layer.beta == 1 and layer.threshold >= 20:
        return soft
    return where(scaled > layer.threshold, x, soft if layer.beta == 1 else soft * (1 / layer.beta))


def _elu(x: Value, alpha: float, scale: float = 1.0) -> Value:
    if scale == 1 and math.isfinite(alpha):
        return node("Elu", alpha=alpha)(x)
    below = node("Min")(x, 0)
    bent = expm1(below if scale == 1 else below * scale) * alpha
    return node("Max")(x, 0) + bent if math.isfinite(alpha) else where(x >= 0, x, bent)


def _softshrink(layer: piecewise.Softshrink, x: Value) -> Value:
    return where(node("Abs")(x) <= layer.lambd, x * 0, x - sign(x) * layer.lambd)


_ACTIVATIONS: Final = {
    activation.Tanhshrink: lambda layer, x: x - node("Tanh")(x),
    activation.Softplus: _softplus,
    activation.GELU: lambda layer, x: node("Gelu", approximate=layer.approximate)(x),
    activation.ELU: lambda layer, x: _elu(x, layer.alpha),
    activation.CELU: lambda layer, x: _elu(x, layer.alpha, 1 / layer.alpha),
    piecewise.LeakyReLU: lambda layer, x: node("LeakyRelu", alpha=layer.negative_slope)(x),
    piecewise.RReLU: lambda layer, x: node("LeakyRelu", alpha=(layer.lower + layer.upper) / 2)(x),
    piecewise.Hardshrink: lambda layer, x: where((x >= -layer.lambd) & (x <= layer.lambd), 0, x),
    piecewise.Softshrink: _softshrink,
}
writes(*_ACTIVATIONS)(activation_)


@writes(piecewise.ReLU)
def relu(to: Writer, layer: piecewise.ReLU, input: Value) -> Value:
    if input.dtype.kind == "f":
        return to.op("Relu", input)
    return write_in(to, lambda x: to.op("Max", x, 0), [input], input.dtype)


@writes(piecewise.Hardtanh, is_exact=True)
def hardtanh(to: Writer, layer: piecewise.Hardtanh, input: Value) -> Value:
    return to.op("Clip", input, layer.min_val, layer.max_val)


@writes(piecewise.Threshold, is_exact=True)
def threshold(to: Writer, layer: piecewise.Threshold, input: Value) -> Value:
    return where(input <= layer.threshold, layer.value, input)


@writes(piecewise.PReLU)
def prelu(to: Writer, layer: piecewise.PReLU, input: Value, weight: Value) -> Value:
    x = to.cast(input, float_dtype(input.dtype))
    shape = layer.slope_shape(input.shape, weight.shape)
    if not shape and weight.shape not in ((), (1,)):
        to.refuse("the axis of the slopes depends on sizes of the input", "export the model with fixed sizes")
    return to.op("PRelu", x, to.reshape(to.cast(weight, x.dtype), shape))


# Three operands


@writes(ternary.Clamp, is_exact=True)
def clamp(to: Writer, layer: ternary.Clamp, input: Value, min: Operand = None, max: Operand = None) -> Value:
    (x, *bounds), dtype = to.common(*(each for each in (input, min, max) if each is not None))
    low = None if min is None else bounds.pop(0)
    high = None if max is None else bounds.pop(0)
    if dtype != BOOL and all(each is None or each.sizes == () for each in (low, high)):
        return to.op("Clip", x, low, high) if low or high else x
    x = x if low is None else FUNCTIONS["maximum"](x, low)
    return x if high is None else FUNCTIONS["minimum"](x, high)


@writes(ternary.Lerp)
def lerp(to: Writer, layer: ternary.Lerp, input: Value, end: Value, weight: Operand) -> Value:
    start, stop, share = (to.tensor(each, input.dtype) for each in (input, end, weight))
    way = stop - start
    return where(to.op("Abs", share) < 0.5, start + share * way, stop - way * (1 - share))


@writes(ternary.AddCMul, ternary.AddCDiv)
def addcmul(
    to: Writer, layer: ternary.AddCMul | ternary.AddCDiv, input: Value, a: Value, b: Value, value: Operand = 1
) -> Value:
    (x, a, b), dtype = to.common(input, a, b)
    is_plain = not isinstance(value, Value) and value in (1, None)
    if isinstance(layer, ternary.AddCMul):
        return x + (a if is_plain else a * to.tensor(value, dtype)) * b
    return x + (a / b if is_plain else a / b * to.tensor(value, dtype))


@writes(mathematics.FloatPower)
def float_power(to: Writer, layer: mathematics.FloatPower, input: Operand, exponent: Operand) -> Value:
    return to.op("Pow", to.tensor(input, FLOAT64), to.tensor(exponent, FLOAT64))


@writes(mathematics.NanToNum, is_exact=True)
def nan_to_num(to: Writer, layer: mathematics.NanToNum, input: Value) -> Value:
    if input.dtype.kind != "f":
        return input
    limits = np.finfo(input.dtype)
    x = where(to.op("IsNaN", input), layer.nan or 0.0, input)
    for infinity, given, limit in ((math.inf, layer.posinf, limits.max), (-math.inf, layer.neginf, limits.min)):
        x = where(to.op("Equal", x, infinity), float(limit) if given is None else given, x)
    return x
