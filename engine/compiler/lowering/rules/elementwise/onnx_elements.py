"""Element-wise operators of ONNX that are of several dtypes: questions, conversions, bits."""

from __future__ import annotations

from engine.compiler.kernels.expr import Number, Operand, apply
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.declining import NotLoweredError
from engine.compiler.lowering.rules.elementwise.calls import Calls, Part, whole
from engine.compiler.lowering.rules.elementwise.domains import domain_of, number_of
from engine.compiler.lowering.rules.elementwise.elements import lower_cast, made_of, operands_of
from engine.compiler.lowering.rules.elementwise.map import lower_map
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import Made
from engine.compiler.storage import View
from engine.layers.definition.layer import Layer
from engine.layers.onnx.elementwise.activation import IsInf, IsNaN
from engine.layers.onnx.elementwise.arithmetic import BitShift, CastLike, OnnxCast, Pow
from engine.promotion import broadcast_shapes
from engine.tensor import TensorSpec, dtype_name

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
    x, count = operands
    if not isinstance(x, View) or not isinstance(count, View) or x.dtype.kind not in "iu" or x.dtype != count.dtype:
        raise NotLoweredError("an operand is no tensor of integers")
    tree = apply("lshift" if layer.direction == "LEFT" else "rshift", Operand(0), Operand(1))
    return made_of(context, tree, operands, domain_of(x.dtype))


@kernels_for(Pow)
def lower_power(context: Context) -> Made:
    """A power in the dtype of its base; one integer with a negative exponent makes floats of all, on the reference."""
    if context.lowering.term(context.op) is not None:
        return lower_map(context)
    calls = Calls(context)
    base, exponent = map(calls.term, context.arguments())
    if not isinstance(base, Part) or not isinstance(exponent, Part):
        raise NotLoweredError("an operand is a number")
    dtype, of_exponent = base.spec.dtype, exponent.spec.dtype
    spec = TensorSpec(broadcast_shapes(base.spec.shape, exponent.spec.shape), dtype)
    if of_exponent.kind not in "iu" or dtype.kind not in "iuf" or (dtype.name, of_exponent.kind) == ("uint64", "i"):
        raise NotLoweredError("there is no kernel for powers of such dtypes")
    if dtype.kind == "f":
        return calls.made(Part(apply("pow", base.tree, exponent.tree), spec, domain_of(dtype)))
    if exponent.array is not None and exponent.array.size == 1 and exponent.array.item() >= 0:
        tree = whole("pow", [base.tree, Number(number_of(exponent.array.reshape(()), dtype))])
        if tree is not None:
            return calls.made(Part(tree, spec, domain_of(dtype)))
    count = apply(f"as_{dtype_name(dtype)}", exponent.tree)
    signed = [*([exponent.tree] if of_exponent.kind == "i" else []), *([count] if dtype.kind == "i" else [])]
    watched = tuple(apply("lt", each, 0) for each in signed)
    return calls.made(Part(apply("pow", base.tree, count), spec, domain_of(dtype), watched))
