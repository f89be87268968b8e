"""Convolutions and products of 8-bit integers with stored weights, as operators that have kernels.

Sums of products of 8-bit integers fit 32 bits for all but absurdly many of them. Where floats are made of the sums,
the operator makes these itself; it has a kernel then.
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
from engine.layers.onnx.products.conv import ConvInteger
from engine.layers.onnx.products.matmul import MatMulInteger
from engine.passes.support.byte_products import has_kernel, most_of, weights_of
from engine.passes.support.facts import Facts, input_named
from engine.passes.support.rewriting import Rewriter
from engine.pnnx import Graph, Operator
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


def _cast(source: str, target: str, dtype: str, name: str) -> Operator:
    return Operator("Tensor.to", name, (source,), (target,), {"dtype": dtype})


# float32 holds all whole numbers up to here.
WHOLE: Final = 2**24
