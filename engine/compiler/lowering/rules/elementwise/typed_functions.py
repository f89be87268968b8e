"""Element-wise functions and expressions of other dtypes than float32, of PyTorch and of ONNX."""

from __future__ import annotations

from collections.abc import Sequence

from engine.compiler.lowering.context import Context
from engine.compiler.lowering.rules.elementwise.typed_calls import (
    Calls,
    TypedArgument,
    TypedExpr,
)
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import Lowered, NotLoweredError
from engine.expression import FUNCTIONS, Call, Input, Literal, Node, postorder
from engine.expression.elementwise import ELEMENTWISE
from engine.layers.creation.container import Expression
from engine.layers.definition.layer import Layer
from engine.layers.elementwise import arithmetic, functions, ternary
from engine.tensor import TensorSpec


def _is_whole(context: Context) -> bool:
    """Return whether the result has integers."""
    spec = context.lowering.spec(context.op.outputs[0])
    return spec is not None and spec.dtype.kind in "iu"


@kernels_for(functions.Unary, functions.Binary, beside_maps=True)
def lower_function(context: Context) -> Lowered:
    """Lower a function of integers, bools or float64."""
    layer, calls = context.layer(Layer), Calls(context)
    assert isinstance(layer, functions.Unary | functions.Binary)
    return calls.lowered(calls.call(functions.DEFINITIONS[layer.function], *map(calls.term, context.arguments())))


@kernels_for(arithmetic.Div, beside_maps=True)
def lower_quotient(context: Context) -> Lowered:
    """Lower a quotient and its rounding; for integers they are one function."""
    layer, calls = context.layer(arithmetic.Div), Calls(context)
    operands = [*map(calls.term, context.arguments())][:2]
    if layer.rounding_mode == "floor":
        return calls.lowered(calls.call("floor_divide", *operands))
    if (layer.rounding_mode == "trunc" or layer.truncates_integers) and _is_whole(context):
        return calls.lowered(calls.call("floor_divide", *operands, kernel="divide"))
    ratio = calls.call("div", *operands)
    return calls.lowered(ratio if layer.rounding_mode is None else calls.call("trunc", ratio))


@kernels_for(arithmetic.Add, arithmetic.Sub, beside_maps=True)
def lower_sum(context: Context) -> Lowered:
    """Lower x + alpha * y, or x - alpha * y."""
    layer, calls = context.layer(Layer), Calls(context)
    assert isinstance(layer, arithmetic.Add | arithmetic.Sub)
    x, other = [*map(calls.term, context.arguments())][:2]
    if isinstance(layer.alpha, complex):
        raise NotLoweredError("there are no kernels for complex numbers")
    if layer.alpha != 1:
        is_beside = isinstance(x, TypedExpr) and x.spec.dtype.kind == "f"
        factor = float(other) if is_beside and isinstance(other, int) else other
        other = calls.call("mul", factor, layer.alpha)
    return calls.lowered(calls.call("add" if isinstance(layer, arithmetic.Add) else "sub", x, other))


@kernels_for(ternary.Clamp, beside_maps=True)
def lower_bounds(context: Context) -> Lowered:
    """Lower min(max(x, min), max), of those bounds that are given."""
    calls = Calls(context)
    x, low, high = context.arguments()
    result = calls.term(x)
    if low is not None:
        result = calls.call("max", result, calls.term(low))
    if high is not None:
        result = calls.call("min", result, calls.term(high))
    return calls.lowered(result)


@kernels_for(Expression, beside_maps=True)
def lower_expression(context: Context) -> Lowered:
    """Lower an expression of any dtypes, call by call."""
    layer, calls = context.layer(Expression), Calls(context)
    if layer.shapes:
        raise NotLoweredError("an operand is used only for its shape")
    done: dict[Node, TypedArgument] = {}
    for node in postorder(layer.tree):
        if node not in done:
            done[node] = _value(
                context, calls, node, [done[each] for each in node.children], is_last=node is layer.tree
            )
    return calls.lowered(done[layer.tree])


def _value(
    context: Context, calls: Calls, node: Node, arguments: Sequence[TypedArgument], *, is_last: bool
) -> TypedArgument:
    """Return the value of a part of an expression."""
    if isinstance(node, Input):
        return calls.term(context.argument(node.index))
    if isinstance(node, Literal) and isinstance(node.value, bool | int | float):
        return node.value
    if not isinstance(node, Call):
        raise NotLoweredError("its result is not a tensor")
    if node.function in ELEMENTWISE:
        name = node.function
        if is_last and name == "div" and _is_whole(context):  # PNNX writes torch.div with rounding so
            name = "floor_divide"
        return calls.call(name, *arguments)
    known = FUNCTIONS[node.function].infer(*(each.spec if isinstance(each, TypedExpr) else each for each in arguments))
    if isinstance(known, bool | int | float):
        return known
    if not isinstance(known, TensorSpec):
        raise NotLoweredError("a number is known only at run time")
    return calls.cast(arguments[0], known.dtype)
