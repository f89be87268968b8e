"""Products of dequantised bytes as products of the bytes themselves: (q - zero) * scale is factored out.

Quantised networks express byte computations in floats: the usual operators between DequantizeLinear and QuantizeLinear.
With bytes the sums are exact, and rounded once, by their scale.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from engine.cancellation import cancellable_quick
from engine.graph import RuntimeGraph, RuntimeOperator
from engine.layers.convolution.conv import Conv
from engine.layers.linear.matmul import Matmul
from engine.layers.onnx.products.quantise import DequantizeLinear
from engine.layers.operands.spatial import spread
from engine.passes.support.byte_products import BYTES, has_byte_kernel, is_of_bytes, most_of
from engine.passes.support.facts import Facts, input_named
from engine.passes.support.rewriting import Rewriter, tensor
from engine.pnnx import Graph, Operator, Parameter
from engine.tensor import Array

_SUMS: Final = 2**31


def quantised_products(graph: RuntimeGraph) -> Graph:
    """Replace convolutions and products of dequantised bytes with dequantised weights by those of the bytes."""
    rewriter, facts = Rewriter(graph), Facts(graph)
    for op in cancellable_quick(graph.operators):
        is_conv = isinstance(op.definition, Conv)
        if (is_conv or type(op.definition) is Matmul) and len(op.inputs) in ((2, 3) if is_conv else (2,)):
            new = _of_bytes(op, facts, rewriter, 0 if is_conv else 1)
            if new:
                rewriter.replace(op, *new)
    return rewriter.result()


def _of_bytes(op: RuntimeOperator, facts: Facts, rewriter: Rewriter, axis: int) -> list[Operator]:
    """Return operators that compute the same; none if it is not such a product, or has no kernel.

    Args:
        axis: output channel axis of the weight.
    """
    x, w = (each.producer for each in op.inputs[:2])
    if x is None or w is None or not all(isinstance(each.definition, DequantizeLinear) for each in (x, w)):
        return []
    given, scale = input_named(x, "input"), _single_scale(x, facts)
    weight, factors = _weights(w, facts, axis), facts.argument(w, "scale")
    if scale is None or weight is None or not is_of_bytes(given, facts) or given is None:
        return []
    zeros = [input_named(each, "zero_point") for each in (x, w)]
    if any(each is None or not is_of_bytes(each, facts, 1 if k == 0 else None) for k, each in enumerate(zeros)):
        return []
    stored, distances = weight
    if isinstance(op.definition, Conv) and not has_byte_kernel(op.definition, stored):
        return []
    if most_of(np.moveaxis(distances, axis, 0)) >= _SUMS:
        return []
    rank = stored.ndim - 2 if axis == 0 else 0
    sums, factor = (rewriter.fresh(f"{op.name}/{what}") for what in ("sums", "scale"))
    with np.errstate(all="ignore"):
        scales = np.asarray(scale * factors.reshape(-1), np.float32)
    inputs = [given.name, *(each.inputs[0].name for each in (w,)), *(each.name for each in zeros if each is not None)]
    type_, params = ("ConvInteger", _parameters(op, stored)) if axis == 0 else ("MatMulInteger", {})
    new = [
        Operator(type_, sums, tuple(inputs), (sums,), {**params, "as_float": True}),
        tensor(factor, scales.reshape(-1, *(1,) * rank) if scales.size > 1 else scales.reshape(())),
    ]
    if len(op.inputs) == 2:
        made = Operator("pnnx.Expression", op.name, (sums, factor), (op.outputs[0].name,), {"expr": "mul(@0,@1)"})
        return [*new, made]
    spec = facts.spec(op.inputs[2])
    if spec is None or spec.dtype != np.float32 or spec.shape != (len(stored),):
        return []
    shift = rewriter.fresh(f"{op.name}/bias")
    shape: dict[str, Parameter] = {"shape": (len(stored), *(1,) * rank)}
    new.append(Operator("Tensor.reshape", shift, (op.inputs[2].name,), (shift,), shape))
    text: dict[str, Parameter] = {"expr": "add(mul(@0,@1),@2)"}
    return [*new, Operator("pnnx.Expression", op.name, (sums, factor, shift), (op.outputs[0].name,), text)]


def _single_scale(op: RuntimeOperator, facts: Facts) -> Array | None:
    scale = facts.argument(op, "scale")
    is_single = isinstance(scale, np.ndarray) and scale.dtype == np.float32 and scale.size == 1
    return scale.reshape(()) if is_single else None


def _weights(op: RuntimeOperator, facts: Facts, axis: int) -> tuple[Array, Array] | None:
    """Return stored bytes with one scale in all or one an output channel, and their distances from the zero points."""
    weight, zero, scale = (facts.argument(op, name) for name in ("input", "zero_point", "scale"))
    layer = op.definition
    assert isinstance(layer, DequantizeLinear)
    if not all(isinstance(each, np.ndarray) for each in (weight, zero, scale)) or weight.dtype not in BYTES:
        return None
    if scale.dtype != np.float32 or layer.block_size or not weight.size or (axis == 1 and weight.ndim != 2):
        return None
    sizes = {scale.size, zero.size}
    if sizes != {1} and (sizes != {weight.shape[axis]} or scale.ndim != 1 or layer.axis % weight.ndim != axis):
        return None
    shape = [1] * weight.ndim
    shape[axis] = -1
    return weight, weight.astype(np.int64) - zero.astype(np.int64).reshape(shape)


def _parameters(op: RuntimeOperator, weight: Array) -> dict[str, Parameter]:
    """Return the parameters of a convolution as ConvInteger has them."""
    layer, rank = op.definition, weight.ndim - 2
    assert isinstance(layer, Conv)
    befores, afters = zip(*layer.padding_of(weight.shape[2:]), strict=True)
    return {
        "dilations": spread(layer.dilation, rank, "dilation"),
        "group": layer.groups,
        "pads": (*befores, *afters),
        "strides": spread(layer.stride, rank, "stride"),
    }
