"""Products of dequantised bytes as products of the bytes themselves: (q - zero) * scale is factored out.

Quantised networks express byte computations in floats: the usual operators between DequantizeLinear and QuantizeLinear.
With bytes the sums are exact, and rounded once, by their scale.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from engine.cancellation import cancellable_quick
from engine.graph import RuntimeGraph, RuntimeOperator
from engine.layers.convolution.conv import Conv
from engine.layers.linear.linear import Linear
from engine.layers.linear.matmul import AddMatmul, Matmul
from engine.layers.onnx.products.quantise import DequantizeLinear
from engine.layers.operands.spatial import spread
from engine.passes.support.byte_products import BYTES, WIDEST, coding_of, has_byte_kernel, is_of_bytes, most_of
from engine.passes.support.facts import Facts, input_named
from engine.passes.support.rewriting import Rewriter, tensor
from engine.pnnx import Graph, Operator, Parameter
from engine.tensor import Array

_SUMS: Final = 2**31


@dataclass(frozen=True, slots=True)
class _Product:
    """Convolution or matrix product.

    Args:
        x, weight, bias: names of its operands; the last is empty without one.
        axis: output channel axis of the weight.
    """

    x: str
    weight: str
    bias: str
    axis: int


def quantised_products(graph: RuntimeGraph) -> Graph:
    """Replace products of dequantised bytes with dequantised weights by those of the bytes; not those of windows."""
    return _rewritten(graph, are_windows=False)


def quantised_windows(graph: RuntimeGraph) -> Graph:
    """Do the same for convolutions of windows of several pixels and channels."""
    return _rewritten(graph, are_windows=True)


def _rewritten(graph: RuntimeGraph, *, are_windows: bool) -> Graph:
    rewriter, facts = Rewriter(graph), Facts(graph)
    for op in cancellable_quick(graph.operators):
        if _is_of_windows(op, facts) != are_windows:
            continue
        product = _product(op)
        new = [] if product is None else _of_bytes(op, product, facts, rewriter)
        new = new or _of_two(op, facts, rewriter)
        if new:
            rewriter.replace(op, *new)
    return rewriter.result()


def _is_of_windows(op: RuntimeOperator, facts: Facts) -> bool:
    """Return whether an operator multiplies windows of several pixels, and sums over channels."""
    layer, weight = op.definition, input_named(op, "weight")
    spec = facts.spec(weight) if isinstance(layer, Conv) and weight is not None else None
    if spec is None or spec.rank < 3 or not isinstance(layer, Conv):
        return False
    _, inputs, *kernel = spec.shape
    return any(size != 1 for size in kernel) and (layer.groups == 1 or inputs != 1)


def _product(op: RuntimeOperator) -> _Product | None:
    """Return the operands of a product; None if it is none, or is scaled."""
    layer = op.definition
    if isinstance(layer, Conv | Linear):
        return _Product("input", "weight", "bias", 0)
    if type(layer) is Matmul:
        return _Product("input", "other", "", 1)
    if isinstance(layer, AddMatmul) and layer.alpha == 1 and layer.beta == 1:
        return _Product("first", "second", "input", 1)
    return None


def _of_bytes(op: RuntimeOperator, product: _Product, facts: Facts, rewriter: Rewriter) -> list[Operator]:
    """Return operators that compute the same; none if it is not such a product, or has no kernel."""
    axis, bias = product.axis, input_named(op, product.bias) if product.bias else None
    x, w = (each.producer if each is not None else None
            for each in (input_named(op, product.x), input_named(op, product.weight)))  # fmt: skip
    if x is None or w is None or not all(isinstance(each.definition, DequantizeLinear) for each in (x, w)):
        return []
    if len(op.inputs) != (2 if bias is None else 3):
        return []
    given, scale = input_named(x, "input"), _single_scale(x, facts)
    weight, factors = _weights(w, facts, axis), facts.argument(w, "scale")
    if scale is None or weight is None or not is_of_bytes(given, facts) or given is None:
        return []
    zeros = [input_named(each, "zero_point") for each in (x, w)]
    if any(each is None or not is_of_bytes(each, facts, 1 if k == 0 else None) for k, each in enumerate(zeros)):
        return []
    stored, distances = weight
    is_conv = isinstance(op.definition, Conv)
    if isinstance(op.definition, Conv) and not has_byte_kernel(op.definition, stored):
        return []
    if not is_conv and stored.ndim != 2:
        return []
    if most_of(np.moveaxis(distances, axis, 0)) >= _SUMS:
        return []
    rank, channels = stored.ndim - 2, stored.shape[axis]
    sums, factor = (rewriter.fresh(f"{op.name}/{what}") for what in ("sums", "scale"))
    scales = _factor(scale, factors.reshape(-1))
    if scales is None:
        return []
    new = [tensor(factor, scales.reshape(-1, *(1,) * rank) if scales.size > 1 else scales.reshape(()))]
    weights = w.inputs[0].name
    if not is_conv and axis == 0:
        weights = rewriter.fresh(f"{op.name}/weight")
        new.append(tensor(weights, stored.T))
    inputs = [given.name, weights, *(each.name for each in zeros if each is not None)]
    type_, params = ("ConvInteger", _parameters(op, stored)) if is_conv else ("MatMulInteger", {})
    new.append(Operator(type_, sums, tuple(inputs), (sums,), {**params, "as_float": True}))
    if bias is None:
        made = Operator("pnnx.Expression", op.name, (sums, factor), (op.outputs[0].name,), {"expr": "mul(@0,@1)"})
        return [*new, made]
    spec = facts.spec(bias)
    if spec is None or spec.dtype != np.float32 or spec.shape != (channels,):
        return []
    shift = rewriter.fresh(f"{op.name}/bias")
    shape: dict[str, Parameter] = {"shape": (channels, *(1,) * rank)}
    new.append(Operator("Tensor.reshape", shift, (bias.name,), (shift,), shape))
    text: dict[str, Parameter] = {"expr": "add(mul(@0,@1),@2)"}
    return [*new, Operator("pnnx.Expression", op.name, (sums, factor, shift), (op.outputs[0].name,), text)]


def _of_two(op: RuntimeOperator, facts: Facts, rewriter: Rewriter) -> list[Operator]:
    """Return operators that compute a product of two tensors which are both computed, of known sizes."""
    makers = [each.producer for each in op.inputs]
    if type(op.definition) is not Matmul or not all(
        each is not None and isinstance(each.definition, DequantizeLinear) for each in makers
    ):
        return []
    x, w = (each for each in makers if each is not None)
    codings, specs = [coding_of(each, facts) for each in (x, w)], [facts.spec(each) for each in op.inputs]
    if codings[0] is None or codings[1] is None or codings[0][2] != BYTES[0]:
        return []
    sizes = [() if each is None or each.shape is None else each.shape[-2:] for each in specs]
    if any(len(each) < 2 or None in each for each in sizes) or WIDEST**2 * (sizes[0][1] or 0) >= _SUMS:
        return []
    sums, factor = (rewriter.fresh(f"{op.name}/{what}") for what in ("sums", "scale"))
    scale = _factor(np.float32(codings[0][0]), np.float32(codings[1][0]))
    if scale is None:
        return []
    inputs = (x.inputs[0].name, w.inputs[0].name, x.inputs[2].name, w.inputs[2].name)
    return [
        tensor(factor, scale),
        Operator("MatMulInteger", sums, inputs, (sums,), {"as_float": True}),
        Operator("pnnx.Expression", op.name, (sums, factor), (op.outputs[0].name,), {"expr": "mul(@0,@1)"}),
    ]


def _factor(scale: Array | np.float32, other: Array | np.float32) -> Array | None:
    """Return the product of scales; None if one exceeds float32, since an infinite scale makes NaN of a sum of 0."""
    with np.errstate(all="ignore"):
        product = np.asarray(scale * other, np.float32)
    return product if np.isfinite(product).all() else None


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
    if scale.dtype != np.float32 or layer.block_size or not weight.size or weight.ndim < 2:
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
