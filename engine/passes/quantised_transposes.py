"""Transposed convolutions of dequantised bytes whose windows do not overlap, as products and a pixel shuffle.

Every pixel becomes a block of pixels, each by a matrix of its own: a 1x1 convolution, of which there are kernels of
bytes, computes the channels of the whole block.
"""

from __future__ import annotations

import numpy as np

from engine.cancellation import cancellable_quick
from engine.graph import RuntimeGraph, RuntimeOperator
from engine.layers.convolution.conv_transpose import ConvTranspose
from engine.layers.onnx.products.quantise import DequantizeLinear
from engine.passes.support.byte_products import BYTES, coding_of, is_in_blocks
from engine.passes.support.facts import Facts, input_named
from engine.passes.support.rewriting import Rewriter, tensor
from engine.pnnx import Graph, Operator, Parameter
from engine.tensor import Array

_CONV: dict[str, Parameter] = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}


def quantised_transposes(graph: RuntimeGraph) -> Graph:
    """Replace transposed convolutions of bytes by convolutions and pixel shuffles."""
    rewriter, facts = Rewriter(graph), Facts(graph)
    for op in cancellable_quick(graph.operators):
        if isinstance(op.definition, ConvTranspose) and (new := _as_shuffle(op, op.definition, facts, rewriter)):
            rewriter.replace(op, *new)
    return rewriter.result()


def _as_shuffle(op: RuntimeOperator, layer: ConvTranspose, facts: Facts, rewriter: Rewriter) -> list[Operator]:
    """Return operators that compute the same; none if windows overlap, or the factors are no bytes."""
    x, w = (each.producer if (each := input_named(op, name)) is not None else None for name in ("input", "weight"))
    if x is None or w is None or not isinstance(w.definition, DequantizeLinear) or coding_of(x, facts) is None:
        return []
    codes, scale, zero = (facts.argument(w, name) for name in ("input", "scale", "zero_point"))
    bias = facts.argument(op, "bias") if input_named(op, "bias") is not None else None
    if not all(isinstance(each, np.ndarray) for each in (codes, scale, zero)) or codes.dtype not in BYTES:
        return []
    if not isinstance(x.definition, DequantizeLinear) or not isinstance(bias, np.ndarray | None):
        return []
    if not is_in_blocks(layer, codes) or w.definition.block_size or w.definition.axis % codes.ndim != 1:
        return []
    size = codes.shape[2]
    names = "weight", "scale", "zero", "floats", "bias", "block"
    found = {name: rewriter.fresh(f"{op.name}/{name}") for name in names}
    arrays = {
        "weight": codes.transpose(2, 3, 1, 0).reshape(-1, codes.shape[0], 1, 1),
        "scale": _repeated(scale, size),
        "zero": _repeated(zero, size),
        **({} if bias is None else {"bias": np.tile(bias, size * size)}),
    }
    inputs = (x.outputs[0].name, *(found[name] for name in ("floats", "bias") if name == "floats" or bias is not None))
    shuffle: dict[str, Parameter] = {"upscale_factor": size, "block_first": True}
    return [
        *(tensor(found[name], np.ascontiguousarray(array)) for name, array in arrays.items()),
        Operator("DequantizeLinear", found["floats"], tuple(found[name] for name in ("weight", "scale", "zero")),
                 (found["floats"],), {"axis": 0}),
        Operator("F.conv2d", found["block"], inputs, (found["block"],), _CONV),
        Operator("nn.PixelShuffle", op.name, (found["block"],), (op.outputs[0].name,), shuffle),
    ]  # fmt: skip


def _repeated(values: Array, size: int) -> Array:
    """Return a number as it is, and one a channel once for every pixel of a block."""
    return values if values.size == 1 else np.tile(values, size * size)
