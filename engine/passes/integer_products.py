"""Convolutions and products of 8-bit integers with stored weights, as operators that have kernels.

Sums of products of 8-bit integers fit 32 bits for all but absurdly many of them. Where floats are made of the sums,
the operator makes these itself; it has a kernel then. Products without a kernel (few channels a group, volumes) are
computed as float32: as long as no sum can pass 2**24, it adds whole numbers without rounding, in any order.
"""

from __future__ import annotations

from dataclasses import replace as with_fields
from typing import Final

import numpy as np

from engine.cancellation import cancellable_quick
from engine.expression.tree import Call, Input
from engine.graph import RuntimeGraph, RuntimeOperand, RuntimeOperator
from engine.layers.creation.container import Expression
from engine.layers.elementwise.cast import To
from engine.layers.onnx.operands.padding import pairs_of, per_axis
from engine.layers.onnx.products.conv import ConvInteger
from engine.layers.onnx.products.matmul import MatMulInteger
from engine.passes.support.byte_products import OPERANDS, has_kernel, is_of_bytes, most_of, weights_of
from engine.passes.support.facts import Facts, input_named
from engine.passes.support.rewriting import Rewriter
from engine.pnnx import Attribute, Graph, Operator, Parameter
from engine.tensor import Array

_SUMS: Final = 2**31
_FLOAT32: Final = np.dtype(np.float32)
_SUM: Final = Call("add", (Input(0), Input(1)))


def integer_products(graph: RuntimeGraph) -> Graph:
    """Rewrite products of 8-bit integers with stored weights into a form that has a kernel."""
    rewriter, facts = Rewriter(graph), Facts(graph)
    for op in cancellable_quick(graph.operators):
        if isinstance(op.definition, ConvInteger | MatMulInteger) and not op.definition.as_float:
            new = _as_sums(op, facts, rewriter)
            if not new and not rewriter.is_touched(op):
                new = _as_floats(op, facts, rewriter)
            if new:
                rewriter.replace(op, *new)
    return rewriter.result()


def _as_sums(op: RuntimeOperator, facts: Facts, rewriter: Rewriter) -> list[Operator]:
    """Return the operator with float sums, cast if needed; none if it has no kernel, or results could differ."""
    weights = weights_of(op, facts)
    if weights is None or not has_kernel(op, weights, facts):
        return []
    if (most := most_of(weights, _bias_of(op, facts))) >= _SUMS:
        return []
    is_biased = input_named(op, "bias") is not None
    y = op.outputs[0]
    following = rewriter.only_consumer(y)
    new = with_fields(op.source, params={**op.source.params, "as_float": True})
    if following is not None and isinstance(op.definition, ConvInteger) and not is_biased:
        bias = _bias_added(following, y, len(weights), weights.ndim - 2, facts)
        cast = rewriter.only_consumer(following.outputs[0])
        if (
            bias is not None
            and cast is not None
            and _makes_floats(cast)
            and not _are_touched(rewriter, following, cast)
        ):
            inputs, labels = (*new.inputs, bias), (*new.labels, "bias")
            rewriter.replace(cast, with_fields(new, inputs=inputs, labels=labels, outputs=(cast.outputs[0].name,)))
            rewriter.drop(following)
            rewriter.drop(op)
            return []
    if following is not None and _makes_floats(following) and not rewriter.is_touched(following):
        rewriter.drop(following)
        return [with_fields(new, outputs=(following.outputs[0].name,))]
    if most >= WHOLE or is_biased:
        return []
    sums = rewriter.fresh(f"{op.name}/sums")
    return [with_fields(new, outputs=(sums,)), _cast(sums, y.name, "torch.int", rewriter.fresh(f"{op.name}/whole"))]


def _bias_of(op: RuntimeOperator, facts: Facts) -> Array | None:
    """Return a stored bias."""
    bias = facts.argument(op, "bias") if input_named(op, "bias") is not None else None
    return bias if isinstance(bias, np.ndarray) else None


def _bias_added(op: RuntimeOperator, sums: RuntimeOperand, channels: int, rank: int, facts: Facts) -> str | None:
    """Return the operand that is added to sums, one number a channel."""
    layer = op.definition
    if not isinstance(layer, Expression) or layer.tree != _SUM or len(op.inputs) != 2:
        return None
    other = next((each for each in op.inputs if each is not sums), None)
    spec = None if other is None else facts.spec(other)
    shapes = ((channels, *(1,) * rank), (1, channels, *(1,) * rank))
    return other.name if other and spec and spec.dtype == np.int32 and spec.shape in shapes else None


def _are_touched(rewriter: Rewriter, *operators: RuntimeOperator) -> bool:
    return any(map(rewriter.is_touched, operators))


def _makes_floats(op: RuntimeOperator) -> bool:
    layer, spec = op.definition, op.outputs[0].spec
    return isinstance(layer, To) and len(op.inputs) == 1 and spec is not None and spec.dtype == _FLOAT32


def _as_floats(op: RuntimeOperator, facts: Facts, rewriter: Rewriter) -> list[Operator]:
    """Return operators that compute the same; none if a sum could be rounded, or an operand is unknown."""
    names = OPERANDS[type(op.definition).__name__]
    x, zero = input_named(op, names[0]), facts.argument(op, names[2])
    bias = _bias_of(op, facts)
    if bias is None and input_named(op, "bias") is not None:
        return []
    product = _product(op, weights_of(op, facts), bias)
    if x is None or product is None or not is_of_bytes(x, facts):
        return []
    type_, params, weight = product
    new = [_cast(x.name, rewriter.fresh(f"{op.name}/float"), "torch.float")]
    if isinstance(zero, np.ndarray | int) and np.size(zero) == 1:
        new += _minus(op, rewriter, new[-1], (), f"{int(np.asarray(zero).reshape(()))}")
    else:
        middle = input_named(op, names[2])
        if middle is None or not is_of_bytes(middle, facts, 1):
            return []
        new.append(_cast(middle.name, rewriter.fresh(f"{op.name}/zero"), "torch.float"))
        new += _minus(op, rewriter, new[0], new[-1].outputs, "@1")
    sums = rewriter.fresh(f"{op.name}/sums")
    stored = {"weight": Attribute(weight.shape, weight.dtype, weight)}
    if bias is not None:
        params["bias"] = True
        stored["bias"] = Attribute(bias.shape, _FLOAT32, bias.astype(np.float32))
    new.append(Operator(type_, op.name, new[-1].outputs, (sums,), params, stored))
    return [*new, _cast(sums, op.outputs[0].name, "torch.int", rewriter.fresh(f"{op.name}/whole"))]


def _cast(source: str, target: str, dtype: str, name: str = "") -> Operator:
    return Operator("Tensor.to", name or target, (source,), (target,), {"dtype": dtype})


def _minus(op: RuntimeOperator, rewriter: Rewriter, x: Operator, others: tuple[str, ...], text: str) -> list[Operator]:
    if text == "0":
        return []
    name = rewriter.fresh(f"{op.name}/centred")
    return [Operator("pnnx.Expression", name, (*x.outputs, *others), (name,), {"expr": f"sub(@0,{text})"})]


def _product(
    op: RuntimeOperator, weights: Array | None, bias: Array | None
) -> tuple[str, dict[str, Parameter], Array] | None:
    """Return type, parameters and weight of the operator for floats; None if a sum may have to be rounded."""
    if weights is None or not weights.size or most_of(weights, bias) >= WHOLE:
        return None
    floats = np.ascontiguousarray(weights, np.float32)
    if isinstance(op.definition, ConvInteger):
        return _convolution(op.definition, floats)
    params: dict[str, Parameter] = {"bias": False}
    return "nn.Linear", params | _widths(floats, 1, "features"), floats


def _widths(weight: Array, groups: int, what: str) -> dict[str, Parameter]:
    return {f"in_{what}": weight.shape[1] * groups, f"out_{what}": weight.shape[0]}


def _convolution(layer: ConvInteger, weight: Array) -> tuple[str, dict[str, Parameter], Array] | None:
    if layer.auto_pad not in ("NOTSET", "VALID"):
        return None
    rank = layer.rank(weight)
    pairs = pairs_of(layer.pads if layer.auto_pad == "NOTSET" else (), rank)
    if rank > 3 or any(before != after for before, after in pairs):
        return None
    params: dict[str, Parameter] = {
        "bias": False,
        "dilation": per_axis(layer.dilations, rank, "dilations"),
        "groups": layer.group,
        "kernel_size": tuple(weight.shape[2:]),
        "padding": tuple(before for before, _ in pairs),
        "padding_mode": "zeros",
        "stride": per_axis(layer.strides, rank, "strides"),
    }
    return f"nn.Conv{rank}d", params | _widths(weight, layer.group, "channels"), weight


# float32 holds all whole numbers up to here.
WHOLE: Final = 2**24
