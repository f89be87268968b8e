"""Element-wise operators of ONNX that are of several dtypes: questions, conversions, bits, quantised numbers."""

from __future__ import annotations

import math

import numpy as np

from engine.compiler.kernels.elements import TYPES
from engine.compiler.kernels.expr import Expr, Number, Operand, apply
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.rules.elements import domain_of, lower_cast, made_of, operands_of
from engine.compiler.lowering.rules.registry import FLOAT32, NotLoweredError, kernels_for
from engine.compiler.lowering.steps import Made
from engine.compiler.lowering.terms.functions import quotient
from engine.compiler.storage import View
from engine.errors import EngineError
from engine.layers.definition.layer import Layer
from engine.layers.onnx.activation import IsInf, IsNaN
from engine.layers.onnx.arithmetic import BitShift, CastLike, OnnxCast
from engine.layers.onnx.quantise import DequantizeLinear, QuantizeLinear
from engine.tensor import Array, dtype_name

_IS_INFINITE = {(True, True): "isinf", (False, True): "isposinf", (True, False): "isneginf"}
# Integers up to which float32 holds all.
_EXACT_BYTES = 2

kernels_for(OnnxCast, CastLike)(lower_cast)


@kernels_for(IsNaN, IsInf)
def lower_question(context: Context) -> Made:
    """Whether an element is NaN, or infinite."""
    layer, (x,) = context.layer(Layer), operands_of(context, 1)
    name = "isnan"
    if isinstance(layer, IsInf):
        signs = layer.detect_negative, layer.detect_positive
        if signs not in _IS_INFINITE:
            raise NotLoweredError("there is no kernel for what asks nothing")
        name = _IS_INFINITE[signs]
    if not isinstance(x, View) or x.dtype.kind != "f":
        raise NotLoweredError("its operand has no such elements")
    return made_of(context, apply(name, Operand(0)), [x], domain_of(x.dtype))


@kernels_for(BitShift)
def lower_shift(context: Context) -> Made:
    """Bits moved to the left or right."""
    layer, operands = context.layer(BitShift), operands_of(context, 2)
    if not all(isinstance(each, View) and each.dtype.kind in "iu" for each in operands):
        raise NotLoweredError("an operand is no tensor of integers")
    tree = apply("lshift" if layer.direction == "LEFT" else "rshift", Operand(0), Operand(1))
    return made_of(context, tree, operands, "i64")


@kernels_for(QuantizeLinear)
def lower_quantise(context: Context) -> Made:
    """round(x / scale) + zero_point within the integers of the result; 0 for NaN."""
    layer, x = context.layer(QuantizeLinear), context.tensor(0)
    spec = context.lowering.spec(context.op.outputs[0])
    if spec is None or spec.dtype.kind not in "iu" or spec.dtype.itemsize > _EXACT_BYTES:
        raise NotLoweredError("there are kernels for quantised numbers of 8 and 16 bits alone")
    numbers = _Numbers(context, layer, x)
    scale, zero = numbers.term(1, "scale", None), numbers.term(2, "zero_point", 0.0)
    level = apply("add", apply("round", quotient(Operand(0), scale)), zero)
    limits = np.iinfo(spec.dtype)
    held = apply("clip", level, float(limits.min), float(limits.max))
    tree = apply("where", apply("isnan", level), 0.0, held)
    return made_of(context, tree, [x, *numbers.views], "float", is_cast=True)


@kernels_for(DequantizeLinear)
def lower_dequantise(context: Context) -> Made:
    """(q - zero_point) * scale"""
    layer, (x,) = context.layer(DequantizeLinear), operands_of(context, 1)
    spec = context.lowering.spec(context.op.outputs[0])
    if not isinstance(x, View) or x.dtype.kind not in "iu" or x.dtype.itemsize > _EXACT_BYTES or spec is None:
        raise NotLoweredError("there are kernels for quantised numbers of 8 and 16 bits alone")
    if spec.dtype != FLOAT32:
        raise NotLoweredError(f"there are no {dtype_name(spec.dtype)} kernels")
    numbers = _Numbers(context, layer, x)
    scale, zero = numbers.term(1, "scale", None), numbers.term(2, "zero_point", 0.0)
    return made_of(context, apply("mul", apply("sub", Operand(0), zero), scale), [x, *numbers.views], "float")


class _Numbers:
    """Scales and zero points, known before the run: one number, or views of what broadcasts to the input."""

    def __init__(self, context: Context, layer: QuantizeLinear | DequantizeLinear, x: View) -> None:
        self.context, self.layer, self.x = context, layer, x
        self.views: list[View] = []

    def term(self, index: int, name: str, default: float | None) -> Expr:
        """One of them as a term."""
        value = self.context.argument(index)
        if value is None and default is not None:
            return Number(default)
        if isinstance(value, bool | int | float):
            return self._number(float(np.float32(value)))
        if not isinstance(value, np.ndarray) or value.dtype.name not in TYPES:
            raise NotLoweredError("its scale or zero point is computed, or of an unusual dtype")
        spread = self._spread(value, name)
        if spread.size == 1:
            return self._number(float(spread.reshape(()).astype(np.float32)))
        stored = self.context.lowering.stored(np.ascontiguousarray(spread, np.float32))
        if not isinstance(stored, View):
            raise NotLoweredError("its scale or zero point is no tensor")
        self.views.append(stored)
        return Operand(len(self.views))

    def _spread(self, value: Array, name: str) -> Array:
        try:
            return self.layer.spread(value, self.x.phantom, name)
        except EngineError as error:
            raise NotLoweredError("its scale or zero point has an unusual shape") from error

    @staticmethod
    def _number(value: float) -> Number:
        if not math.isfinite(value):
            raise NotLoweredError("its scale is no number")
        return Number(value)
