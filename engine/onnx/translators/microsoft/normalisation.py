"""Normalisations fused with preceding sums and embeddings."""

from __future__ import annotations

import numpy as np

from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import MICROSOFT, translates
from engine.onnx.translation.value import Axis, Size, Value, constant
from engine.onnx.translators.indexing import selected
from engine.onnx.translators.normalisation import layer_normed, rms_normed

# Unlike of the operators of ONNX.
_EPSILON = 1e-12


def _normalised(node: Node, x: Value, scale: Value, bias: Value | None, plain: bool = True) -> Value | None:
    """Normalise over the last axis by LayerNorm, or by RMSNorm if not ``plain``."""
    spec, eps = scale.tensor, node.real("epsilon", _EPSILON)
    if spec is None or spec.rank != 1 or spec.shape[0] is None:
        return None
    shape = (spec.shape[0],)
    return layer_normed(node, x, scale, bias, shape, eps) if plain else rms_normed(node, x, scale, shape, eps)


def _skip(node: Node, plain: bool) -> list[Value] | None:
    """Return the normalised sum of two values, and the sum."""
    has_shift = plain
    scale, shift = node.input(2), node.optional(3) if has_shift else None
    bias = node.optional(4 if has_shift else 3)
    if any(node.outputs[1:3]):  # statistics are only used in training
        return None
    total = node.expression("add(@0,@1)", node.input(0), node.input(1))
    total = total if bias is None else node.expression("add(@0,@1)", total, bias)
    y = _normalised(node, total, scale, shift, plain)
    return None if y is None else [y, Value(), Value(), total]


@translates("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_norm(node: Node) -> list[Value] | None:
    """Translate to nn.LayerNorm of a sum."""
    return _skip(node, True)


@translates("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_rms_norm(node: Node) -> list[Value] | None:
    """Translate to nn.RMSNorm of a sum."""
    return _skip(node, False)


@translates("EmbedLayerNormalization", domain=MICROSOFT)
def embedded(node: Node) -> list[Value] | None:
    """Return the normalised sum of word, position and segment embeddings, the unmasked word counts, and the sum."""
    words, segments, table = node.input(0), node.optional(1), node.input(3)
    spec = words.tensor
    if spec is None or spec.rank != 2:
        return None
    total = selected(node, node.input(2), words)
    length: Size = Axis(words, 1) if spec.shape[1] is None else spec.shape[1]
    if node.is_given(8):
        rows = selected(node, table, node.input(8))
    elif isinstance(length, int) and table.constant is not None:
        rows = constant(np.ascontiguousarray(table.constant[:length]))
    else:
        rows = node.builder.add(
            "Tensor.slice", node.name, [table, node.sizes([length])],
            params={"dims": (0,), "starts": (0,), "steps": (1,)}, labels=("input", "ends"),
        )[0]  # fmt: skip
    total = node.expression("add(@0,@1)", total, rows)
    if segments is not None and node.is_given(4):
        total = node.expression("add(@0,@1)", total, selected(node, node.input(4), segments))
    y = _normalised(node, total, node.input(5), node.optional(6))
    return None if y is None else [y, _counted(node, words, node.optional(7)), total]


def _counted(node: Node, words: Value, mask: Value | None) -> Value:
    """Count the unmasked words of each row; zeros without a mask."""
    if not any(node.outputs[1:2]):
        return Value()
    counts = node.make("torch.sum", words if mask is None else mask, dim=(1,), keepdim=False)
    counts = node.make("Tensor.to", counts, dtype="torch.int")
    return counts if mask is not None else node.expression("mul(@0,0)", counts)
