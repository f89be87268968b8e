"""Helpers of attention: split and merge heads, append to cached keys, compute attention per head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.onnx.translation.node import Node
from engine.onnx.translation.value import Value, constant
from engine.onnx.translators.shape import reshaped


def by_heads(node: Node, x: Value, heads: int) -> Value | None:
    """Reshape (B, S, H*D) to (B, H, S, D); None if the width is not divisible by the heads."""
    shape = x.shape_as()
    if shape is None or len(shape) != 3 or heads < 1:
        return None
    if not isinstance(shape[2], int):
        parts = node.make("Tensor.reshape", x, shape=(0, 0, heads, -1), zero_copies=True)
    elif shape[2] % heads:
        return None
    else:
        parts = reshaped(node, x, [*shape[:2], heads, shape[2] // heads])
    return node.make("torch.permute", parts, dims=(0, 2, 1, 3))


def packed(node: Node, y: Value) -> Value:
    """Reshape (B, H, S, D) to (B, S, H*D)."""
    y = node.make("torch.permute", y, dims=(0, 2, 1, 3))
    shape = y.shape_as()
    if shape is None or not isinstance(shape[2], int) or not isinstance(shape[3], int):
        return node.make("torch.flatten", y, start_dim=2, end_dim=-1)
    return reshaped(node, y, [*shape[:2], shape[2] * shape[3]])


def added(node: Node, mask: Value, low: float = -np.inf) -> Value:
    """Convert a boolean mask to an additive one: 0 for keys to attend to, ``low`` for the others."""
    return node.make("torch.where", mask, constant(np.array(0, np.float32)), constant(np.array(low, np.float32)))


def attended(
    node: Node,
    q: Value,
    k: Value,
    v: Value,
    masks: Sequence[Value],
    *,
    causal: bool = False,
    past: Value | None = None,
    scale: float = 0.0,
    grouped: bool = False,
) -> Value:
    """Append attention of heads, (B, H, S, D).

    Args:
        masks: each added to the scores.
        past: cached keys, which ``k`` already begins with.
        scale: of the scores; 0 for 1 / sqrt(D).
    """
    masks = list(masks)
    if causal and (masks or past is not None):
        operands = [q, k] if past is None else [q, k, past]
        masks.append(node.make("engine.CausalMask", *operands))
        causal = False
    operands = [q, k, v]
    if masks:
        total = masks[0]
        for mask in masks[1:]:
            total = node.expression("add(@0,@1)", total, mask)
        operands.append(total)
    labels = ("query", "key", "value", "attn_mask")[: len(operands)]
    params: dict[str, Any] = {"is_causal": causal, **({"scale": scale} if scale else {})}
    if grouped:
        params["enable_gqa"] = True
    return node.builder.add(
        "F.scaled_dot_product_attention", node.name, operands, params=params, labels=labels
    )[0]  # fmt: skip


def with_past(node: Node, past: Value | None, new: Value) -> Value:
    """Append new keys or values to the cached ones."""
    return new if past is None else node.make("torch.cat", past, new, dim=2)


def length_of(k: Value) -> object:
    spec = k.tensor
    return None if spec is None else spec.shape[2]
