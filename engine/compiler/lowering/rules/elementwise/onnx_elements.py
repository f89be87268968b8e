"""Element-wise operators of ONNX that are of several dtypes: questions, conversions, bits."""

from __future__ import annotations

from engine.compiler.kernels.expr import Operand, apply
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.rules.elementwise.elements import domain_of, lower_cast, made_of, operands_of
from engine.compiler.lowering.rules.registry import NotLoweredError, kernels_for
from engine.compiler.lowering.steps import Made
from engine.compiler.storage import View
from engine.layers.definition.layer import Layer
from engine.layers.onnx.elementwise.activation import IsInf, IsNaN
from engine.layers.onnx.elementwise.arithmetic import BitShift, CastLike, OnnxCast

_IS_INFINITE = {(True, True): "isinf", (False, True): "isposinf", (True, False): "isneginf"}

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
