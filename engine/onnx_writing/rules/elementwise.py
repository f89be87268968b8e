"""Element-wise operators: arithmetic, activations, comparisons, logic and casts."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
    compare,
    evaluate,
    expm1,
    is_negative,
    number,
    times,
    truncated_quotient,
    where,
    write_in,
)
from engine.onnx_writing.value import Operand, Value, promoted
from engine.onnx_writing.writer import BOOL, FLOAT32, INT32, INT64, Writer
from engine.promotion import float_dtype
from engine.tensor import DType, Number


@writes(functions.Unary)
def unary(to: Writer, layer: functions.Unary, input: Value) -> Value:
    return evaluate(to, functions.DEFINITIONS[layer.function], input)


@writes(functions.Binary)
def binary(to: Writer, layer: functions.Binary, input: Operand, other: Operand) -> Value:
    return evaluate(to, functions.DEFINITIONS[layer.function], input, other)


@writes(arithmetic.Add)
def add(to: Writer, layer: arithmetic.Add, input: Operand, other: Operand) -> Value:
    return evaluate(to, ELEMENTWISE["add"], input, _scaled(to, layer.alpha, other, input))


@writes(arithmetic.Sub)
def sub(to: Writer, layer: arithmetic.Sub, input: Operand, other: Operand) -> Value:
    return evaluate(to, ELEMENTWISE["sub"], input, _scaled(to, layer.alpha, other, input))


def _scaled(to: Writer, alpha: Number, operand: Operand, partner: Operand) -> Operand:
    if alpha == 1:
        return operand
    if isinstance(operand, int) and isinstance(partner, Value) and partner.dtype.kind == "f":
        operand = float(operand)
    if not isinstance(operand, Value):
        return operand * alpha
    return evaluate(to, ELEMENTWISE["mul"], operand, alpha)


@writes(arithmetic.Div)
def div(to: Writer, layer: arithmetic.Div, input: Operand, other: Operand) -> Value:
    mode = layer.mode(promoted(input), promoted(other))
    if mode != "trunc":
        return evaluate(to, ELEMENTWISE["div" if mode is None else "floor_divide"], input, other)
    operands, dtype = to.common(input, other)
    return write_in(to, truncated_quotient, operands, dtype)


@writes(comparison.Comparison, is_exact=True)
def comparison_(to: Writer, layer: comparison.Comparison, input: Operand, other: Operand) -> Value:
    (x, y), dtype = to.common(*_vectors(input, other))
    if dtype == BOOL and layer.function not in ("eq", "ne") or dtype.kind in "iu" and dtype.itemsize < 4:
        x, y = to.cast(x, INT32), to.cast(y, INT32)
    if layer.function == "ne":
        return to.op("Not", compare(to, "Equal", x, y), dtype=BOOL)
    return compare(to, _COMPARISONS[layer.function], x, y)


_COMPARISONS: Final = {
    "eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual",
}  # fmt: skip


def _vectors(*operands: Operand) -> Sequence[Operand]:
    """Return operands with lists as vectors, in the dtype of the tensors beside them."""
    return operands


@writes(comparison.Predicate, is_exact=True)
def predicate(to: Writer, layer: comparison.Predicate, input: Value) -> Value:
    answer: Value = _PREDICATES[layer.function](to, input)
    return answer


def _constant_answer(to: Writer, x: Value, answer: bool) -> Value:
    """Write the same answer for every element."""
    same = to.op("Equal", x, x, dtype=BOOL)
    return same if answer else to.op("Not", same, dtype=BOOL)


def _is_nan(to: Writer, x: Value) -> Value:
    return to.op("IsNaN", x, dtype=BOOL) if x.dtype.kind == "f" else _constant_answer(to, x, False)


def _is_inf(positive: int = 1, negative: int = 1) -> Any:
    def write(to: Writer, x: Value) -> Value:
        if x.dtype.kind != "f":
            return _constant_answer(to, x, False)
        return to.op("IsInf", x, dtype=BOOL, detect_positive=positive, detect_negative=negative)

    return write


def _is_finite(to: Writer, x: Value) -> Value:
    if x.dtype.kind != "f":
        return _constant_answer(to, x, True)
    return compare(to, "Less", to.op("Abs", x), math.inf)


def _is_zero(to: Writer, x: Value) -> Value:
    return to.op("Not", truth(to, x), dtype=BOOL)


_PREDICATES: Final = {
    "isnan": _is_nan, "isinf": _is_inf(), "isfinite": _is_finite, "isposinf": _is_inf(1, 0),
    "isneginf": _is_inf(0, 1), "isreal": lambda to, x: _constant_answer(to, x, True), "logical_not": _is_zero,
    "signbit": lambda to, x: _constant_answer(to, x, False) if x.dtype == BOOL else is_negative(to, x),
}  # fmt: skip


def truth(to: Writer, x: Value) -> Value:
    """Return whether elements are not zero; NaN is not."""
    return x if x.dtype == BOOL else to.op("Cast", x, dtype=BOOL, to=to.code(BOOL))


@writes(comparison.IsClose)
def is_close(to: Writer, layer: comparison.IsClose, input: Value, other: Value) -> Value:
    wide = np.promote_types(input.dtype, FLOAT32)
    x, y = to.cast(input, wide), to.cast(other, wide)
    distance = to.op("Abs", to.op("Sub", x, y))
    allowed = to.op("Add", times(to, to.op("Abs", y), layer.rtol), number(to, layer.atol, y))
    near = to.op("And", compare(to, "Less", distance, math.inf), compare(to, "LessOrEqual", distance, allowed))
    close = to.op("Or", compare(to, "Equal", x, y), near)
    if not layer.equal_nan:
        return close
    both = to.op("And", to.op("IsNaN", x, dtype=BOOL), to.op("IsNaN", y, dtype=BOOL))
    return to.op("Or", close, both)


@writes(logical.Logical)
def logical_(to: Writer, layer: logical.Logical, input: Operand, other: Operand) -> Value:
    x, y = (truth(to, to.tensor(each)) for each in (input, other))
    return to.op(layer.function.removeprefix("logical_").capitalize(), x, y)


@writes(logical.BitwiseNot)
def bitwise_not(to: Writer, layer: logical.BitwiseNot, input: Value) -> Value:
    return to.op("Not" if input.dtype == BOOL else "BitwiseNot", input)


# Casts and copies


@writes(cast.To)
def cast_to(to: Writer, layer: cast.To, input: Operand) -> Operand:
    if layer.dtype is None:
        return input
    value = to.tensor(input)
    made = to.cast(value, layer.dtype)
    is_size = layer.dtype in (INT64, BOOL)
    return replace(made, is_number=value.is_number and is_size)


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


def _floating(to: Writer, input: Value) -> Value:
    return to.cast(input, float_dtype(input.dtype))


@writes(activation.Tanhshrink)
def tanhshrink(to: Writer, layer: activation.Tanhshrink, input: Value) -> Value:
    x = _floating(to, input)
    return to.op("Sub", x, to.op("Tanh", x))


@writes(activation.Softplus)
def softplus(to: Writer, layer: activation.Softplus, input: Value) -> Value:
    x = _floating(to, input)
    scaled = x if layer.beta == 1 else times(to, x, layer.beta)
    soft = to.op("Softplus", scaled)
    soft = soft if layer.beta == 1 else times(to, soft, 1 / layer.beta)
    if layer.beta == 1 and layer.threshold >= 20:
        return soft
    return where(to, compare(to, "Greater", scaled, layer.threshold), x, soft)


@writes(activation.GELU)
def gelu(to: Writer, layer: activation.GELU, input: Value) -> Value:
    return to.op("Gelu", _floating(to, input), approximate=layer.approximate)


@writes(activation.ELU)
def elu(to: Writer, layer: activation.ELU, input: Value) -> Value:
    return _elu(to, _floating(to, input), layer.alpha, 1.0)


@writes(activation.CELU)
def celu(to: Writer, layer: activation.CELU, input: Value) -> Value:
    return _elu(to, _floating(to, input), layer.alpha, 1 / layer.alpha)


def _elu(to: Writer, x: Value, alpha: float, scale: float) -> Value:
    if scale == 1 and math.isfinite(alpha):
        return to.op("Elu", x, alpha=alpha)
    below = to.op("Min", x, number(to, 0, x))
    bent = times(to, expm1(to, below if scale == 1 else times(to, below, scale)), alpha)
    if not math.isfinite(alpha):
        return where(to, compare(to, "GreaterOrEqual", x, 0), x, bent)
    return to.op("Add", to.op("Max", x, number(to, 0, x)), bent)


@writes(piecewise.ReLU)
def relu(to: Writer, layer: piecewise.ReLU, input: Value) -> Value:
    if input.dtype.kind == "f":
        return to.op("Relu", input)
    return write_in(to, lambda to, x: to.op("Max", x, number(to, 0, x)), [input], input.dtype)


@writes(piecewise.Hardtanh, is_exact=True)
def hardtanh(to: Writer, layer: piecewise.Hardtanh, input: Value) -> Value:
    return _clipped(to, input, to.constant(layer.min_val, input.dtype), to.constant(layer.max_val, input.dtype))


@writes(piecewise.Threshold, is_exact=True)
def threshold(to: Writer, layer: piecewise.Threshold, input: Value) -> Value:
    low = compare(to, "LessOrEqual", input, layer.threshold)
    return where(to, low, layer.value, input)


@writes(piecewise.LeakyReLU)
def leaky_relu(to: Writer, layer: piecewise.LeakyReLU, input: Value) -> Value:
    return to.op("LeakyRelu", _floating(to, input), alpha=layer.negative_slope)


@writes(piecewise.RReLU)
def rrelu(to: Writer, layer: piecewise.RReLU, input: Value) -> Value:
    return to.op("LeakyRelu", _floating(to, input), alpha=(layer.lower + layer.upper) / 2)


@writes(piecewise.PReLU)
def prelu(to: Writer, layer: piecewise.PReLU, input: Value, weight: Value) -> Value:
    x = _floating(to, input)
    shape = layer.slope_shape(input.shape, weight.shape)
    if not shape and weight.shape not in ((), (1,)):
        to.refuse("the axis of the slopes depends on sizes of the input", "export the model with fixed sizes")
    return to.op("PRelu", x, to.reshape(to.cast(weight, x.dtype), shape))


@writes(piecewise.Hardshrink)
def hardshrink(to: Writer, layer: piecewise.Hardshrink, input: Value) -> Value:
    x = _floating(to, input)
    inside = [compare(to, "GreaterOrEqual", x, -layer.lambd), compare(to, "LessOrEqual", x, layer.lambd)]
    return where(to, to.op("And", *inside), 0.0, x)


@writes(piecewise.Softshrink)
def softshrink(to: Writer, layer: piecewise.Softshrink, input: Value) -> Value:
    x = _floating(to, input)
    moved = to.op("Sub", x, times(to, FUNCTIONS["sign"](to, x), layer.lambd))
    inside = compare(to, "LessOrEqual", to.op("Abs", x), layer.lambd)
    return where(to, inside, times(to, x, 0), moved)


# Three operands


@writes(ternary.Clamp, is_exact=True)
def clamp(to: Writer, layer: ternary.Clamp, input: Value, min: Operand = None, max: Operand = None) -> Value:
    operands, dtype = to.common(*(each for each in (input, min, max) if each is not None))
    x, *bounds = operands
    low = None if min is None else bounds.pop(0)
    high = None if max is None else bounds.pop(0)
    if dtype == BOOL or any(each is not None and each.sizes != () for each in (low, high)):
        x = x if low is None else FUNCTIONS["maximum"](to, x, low)
        return x if high is None else FUNCTIONS["minimum"](to, x, high)
    return _clipped(to, x, low, high)


def _clipped(to: Writer, x: Value, low: Value | None, high: Value | None) -> Value:
    if low is None and high is None:
        return x
    kept = [None if each is None else each for each in (low, high)]
    wide = INT32 if x.dtype.kind in "iu" and x.dtype.itemsize == 2 else x.dtype  # runtimes have no kernels for 16 bits
    return to.cast(to.op("Clip", to.cast(x, wide), *(each and to.cast(each, wide) for each in kept)), x.dtype)


@writes(ternary.Lerp)
def lerp(to: Writer, layer: ternary.Lerp, input: Value, end: Value, weight: Operand) -> Value:
    start, stop, share = (to.tensor(each, input.dtype) for each in (input, end, weight))
    way = to.op("Sub", stop, start)
    near = to.op("Add", start, to.op("Mul", share, way))
    rest = to.op("Sub", number(to, 1, share), share)
    far = to.op("Sub", stop, to.op("Mul", way, rest))
    return where(to, compare(to, "Less", to.op("Abs", share), 0.5), near, far)


@writes(ternary.AddCMul)
def addcmul(
    to: Writer, layer: ternary.AddCMul, input: Value, tensor1: Value, tensor2: Value, value: Operand = 1
) -> Value:
    (x, a, b), dtype = to.common(input, tensor1, tensor2)
    product = _times_number(to, a, value)
    return to.op("Add", x, to.op("Mul", product, b))


@writes(ternary.AddCDiv)
def addcdiv(
    to: Writer, layer: ternary.AddCDiv, input: Value, tensor1: Value, tensor2: Value, value: Operand = 1
) -> Value:
    (x, a, b), dtype = to.common(input, tensor1, tensor2)
    return to.op("Add", x, _times_number(to, to.op("Div", a, b), value))


def _times_number(to: Writer, x: Value, factor: Operand) -> Value:
    return x if factor in (1, None) and not isinstance(factor, Value) else to.op("Mul", x, to.tensor(factor, x.dtype))


@writes(mathematics.FloatPower)
def float_power(to: Writer, layer: mathematics.FloatPower, input: Operand, exponent: Operand) -> Value:
    wide: DType = np.dtype(np.float64)
    return to.op("Pow", to.tensor(input, wide), to.tensor(exponent, wide))


@writes(mathematics.NanToNum, is_exact=True)
def nan_to_num(to: Writer, layer: mathematics.NanToNum, input: Value) -> Value:
    if input.dtype.kind != "f":
        return input
    limits = np.finfo(input.dtype)
    x = where(to, to.op("IsNaN", input, dtype=BOOL), layer.nan or 0.0, input)
    for sign, given in ((1, layer.posinf), (-1, layer.neginf)):
        replacement = float(limits.max if sign > 0 else limits.min) if given is None else given
        x = where(to, compare(to, "Equal", x, sign * math.inf), replacement, x)
    return x
