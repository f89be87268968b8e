"""Attention operator of the ONNX standard."""

from __future__ import annotations

from typing import Final

import numpy as np

from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import translates
from engine.onnx.translation.value import Value
from engine.onnx.translators.attention.heads import added, attended, by_heads, length_of, packed, with_past

_FLOAT32: Final = np.dtype(np.float32)


@translates("Attention", since=23)
def standard_attention(node: Node) -> list[Value]:
    """Translate to F.scaled_dot_product_attention where equivalent; else keep ONNX's layer."""
    return _mapped(node) or node.same()


def _mapped(node: Node) -> list[Value] | None:
    ends = [node.number(key, -1) for key in ("left_window_size", "right_window_size")]
    values = [node.input(k) for k in range(3)]
    is_plain = not node.real("softcap", 0.0) and max(ends) < 0 and not node.is_given(6) and not any(node.outputs[3:])
    if not is_plain or any(value.dtype != _FLOAT32 or value.rank not in (3, 4) for value in values):
        return None
    heads = node.number("q_num_heads", 0), *[node.number("kv_num_heads", 0)] * 2
    split = [by_heads(node, x, n) if x.rank == 3 else x for x, n in zip(values, heads, strict=True)]
    pasts = node.optional(4), node.optional(5)
    if any(part is None for part in split) or (pasts[0] is None) != (pasts[1] is None):
        return None
    q, new_k, new_v = (part for part in split if part is not None)
    counts = [None if part.tensor is None else part.tensor.shape[1] for part in (q, new_k)]
    if None in counts or any(past is not None and past.rank != 4 for past in pasts):
        return None
    k, v = with_past(node, pasts[0], new_k), with_past(node, pasts[1], new_v)
    masks = []
    if node.is_given(3):
        mask = node.input(3)
        keys = None if mask.tensor is None or not mask.rank else mask.tensor.shape[-1]
        if keys is None or keys != length_of(k) or mask.dtype not in (_FLOAT32, np.dtype(np.bool_)):
            return None
        masks.append(added(node, mask) if mask.dtype != _FLOAT32 else mask)
    causal, scale = bool(node.number("is_causal", 0)), node.real("scale", 0.0)
    y = attended(node, q, k, v, masks, causal=causal, past=pasts[0], scale=scale, grouped=counts[0] != counts[1])
    y = packed(node, y) if values[0].rank == 3 else y
    return [y, k, v][: max(1, len(node.outputs))]
