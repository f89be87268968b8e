"""Attention operator of the ONNX standard."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from engine.errors import ParameterError, ShapeError
from engine.layers.onnx.operands.adapter import check_fits
from engine.layers.operands.spatial import REAL, tensor
from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import translates
from engine.onnx.translation.value import Value
from engine.onnx.translators.attention.heads import added, attended, by_heads, length_of, packed, with_past
from engine.onnx.translators.elementwise import computed
from engine.onnx.translators.gathering import numbers
from engine.onnx.translators.precision import in_dtype_of, widened

_RESULTS: Final = ("the attention", "the keys", "the values", "the scores")


@translates("Attention", since=23)
def standard_attention(node: Node) -> list[Value]:
    """Translate to F.scaled_dot_product_attention, or to products and a softmax if scores are capped or returned."""
    query, key, value = (node.input(k) for k in range(3))
    mask, *pasts, lengths = _others(node)
    counts = node.number("q_num_heads", 0), *[node.number("kv_num_heads", 0)] * 2
    q, *new = (_heads(node, x, count) for x, count in zip((query, key, value), counts, strict=True))
    k, v = (with_past(node, past, each) for past, each in zip(pasts, new, strict=True))
    groups = _groups(q, k)
    windows = [node.number(f"{side}_window_size", -1) for side in ("left", "right")]
    _check_mask(mask, k)
    is_plain = not node.real("softcap", 0.0) and max(windows) < 0 and lengths is None and not any(node.outputs[3:])
    sizes = [each.tensor.shape[axis] for each, axis in ((mask, -1), (k, 2)) if each is not None and each.tensor]
    if is_plain and (mask is None or (None not in sizes and len({*sizes}) == 1)):
        causal, scale = bool(node.number("is_causal", 0)), node.real("scale", 0.0)
        masks = [] if mask is None else [added(node, mask) if _is_bool(mask) else in_dtype_of(node, mask, q)]
        y = attended(node, q, k, v, masks, causal=causal, past=pasts[0], scale=scale, grouped=groups != 1)
        results = [y, k, v]
    else:
        keys, values = k, v
        if groups != 1:
            keys, values = (node.make("torch.repeat_interleave", x, repeats=groups, dim=1) for x in (k, v))
        scores = _scores(node, q, keys, _hidden(node, q, keys, pasts[0], lengths), mask)
        y = in_dtype_of(node, node.make("torch.matmul", scores[3], widened(node, values)), query)
        mode = node.number("qk_matmul_output_mode", 0)
        if mode not in range(4):
            raise ParameterError("unknown qk_matmul_output_mode", found=mode, expected="0 to 3")
        results = [y, k, v, in_dtype_of(node, scores[mode], query)]
    results[0] = packed(node, results[0]) if query.rank == 3 else results[0]
    count = max(1, len(node.outputs))
    return results[:count] if node.names_results or count == 1 else node.results(results, _RESULTS)


def _others(node: Node) -> Sequence[Value | None]:
    """Return the mask, the cached keys and values, and the lengths of padded keys."""
    given = [node.optional(k) for k in range(3, 7)]
    if not node.names_results:
        given = _by_spec([each for each in given if each is not None])
    if (given[1] is None) != (given[2] is None):
        raise ShapeError("keys of earlier steps come with values", found="one of them", expected="both, or none")
    if given[1] is not None and given[3] is not None:
        expected = "one of them"
        raise ShapeError("lengths of padded keys beside keys of earlier steps", found="both", expected=expected)
    return given


def _by_spec(others: Sequence[Value]) -> list[Value | None]:
    """Identify operands by rank and dtype, because pnnx's converter omits optional ones without a trace."""
    last = others[-1] if others else None
    if last is not None and last.dtype is not None and last.dtype.kind == "i" and (last.rank or 0) < 2:
        front: list[Value | None] = [*others[:-1], None, None, None]
        return [*front[:3], last]
    if len(others) > 3:
        raise ShapeError("too many operands", found=3 + len(others), expected="the fourth of the others an i64 vector")
    mask = others[0] if len(others) in (1, 3) else None
    return [mask, *(others[-2:] if len(others) > 1 else (None, None)), None]


def _heads(node: Node, x: Value, count: int) -> Value:
    if x.rank == 4:
        return x
    if x.rank != 3:
        raise ShapeError("operand does not fit", found=str(x.tensor), expected="3 or 4 axes")
    split = by_heads(node, x, count)
    if split is None:
        raise ShapeError("the width does not divide into heads", found=str(x.tensor), expected=count)
    return split


def _groups(q: Value, k: Value) -> int:
    """Return how many heads of queries share one head of keys."""
    many, few = (None if each.tensor is None else each.tensor.shape[1] for each in (q, k))
    if many is None or few is None:
        raise ShapeError("heads are not known before a run", found=f"{many} and {few}", expected="two numbers")
    if not few or many % few:
        raise ShapeError("heads do not divide into groups", found=f"{many} by {few}")
    return many // few


def _check_mask(mask: Value | None, k: Value) -> None:
    """Refuse a mask that has no keys, or more than there are; it may have fewer."""
    if mask is None or mask.tensor is None:
        return
    if not _is_bool(mask):
        tensor(mask.tensor, "attn_mask", REAL)
    shape, keys = mask.tensor.shape, length_of(k)
    fits = bool(shape) and (not isinstance(keys, int) or (shape[-1] or 0) <= keys)
    check_fits(fits, "attn_mask", shape, f"at most {keys} keys")


def _scores(node: Node, q: Value, k: Value, hidden: Sequence[Value], mask: Value | None) -> list[Value]:
    """Return the products, these after softcap, these after the mask, and the weights."""
    turned = node.make("torch.transpose", widened(node, k), dim0=-1, dim1=-2)
    products = node.make("torch.matmul", widened(node, q), turned)
    cap, width, given = node.real("softcap", 0.0), q.tensor.shape[3] if q.tensor else None, "scale" in node.attributes
    if given or width:
        scale = node.real("scale", 0.0) if given else 1 / math.sqrt(width or 1)
        products = node.expression(f"mul(@0,{scale!r})", products)
    else:
        products = node.expression("div(@0,sqrt(size(@1,3)))", products, q)
    capped = node.expression(f"mul(tanh(div(@0,{cap!r})),{cap!r})", products) if cap else products
    masked = capped
    if mask is not None:
        mask = added(node, mask) if _is_bool(mask) else mask
        masked = node.expression("add(@0,@1)", masked, _lengthened(node, in_dtype_of(node, mask, masked), k))
    for each in hidden:
        masked = node.make("Tensor.masked_fill", masked, each, value=-math.inf)
    weights = node.make("F.softmax", masked, dim=-1)
    if masked is not capped:  # weights of a query that sees no key are 0
        top = node.make("torch.amax", masked, dim=(-1,), keepdim=True)
        weights = node.make("Tensor.masked_fill", weights, node.make("torch.eq", top, other=-math.inf), value=0.0)
    return [products, capped, masked, weights]


def _hidden(node: Node, q: Value, k: Value, past: Value | None, lengths: Value | None) -> list[Value]:
    """Return masks of the keys that queries do not see: behind the padded ones, or outside their window."""
    places, own = numbers(node, k, 2), numbers(node, q, 2, 1)
    hidden = []
    if lengths is not None:
        ends = node.make("Tensor.reshape", lengths, shape=(-1, 1, 1, 1))
        hidden.append(node.make("torch.ge", places, ends))
        own = node.expression("sub(add(@0,@1),size(@2,2))", own, ends, q)  # the last query sees all keys that count
    elif past is not None:
        own = node.expression("add(@0,size(@1,2))", own, past)
    left, right = (node.number(f"{side}_window_size", -1) for side in ("left", "right"))
    if node.number("is_causal", 0):
        right = 0
    distance = node.expression("sub(@0,@1)", places, own)
    if right >= 0:
        hidden.append(node.make("torch.gt", distance, other=right))
    if left >= 0:
        hidden.append(node.make("torch.lt", distance, other=-left))
    return hidden


def _lengthened(node: Node, mask: Value, k: Value) -> Value:
    """Return a mask that also hides the keys at the end for which it has no element."""
    keys, given = k.shape_as(), mask.shape_as()
    if keys is None or given is None:
        return mask
    more = computed("sub", keys[2], given[-1])
    if isinstance(more, int):
        return node.make("F.pad", mask, pad=(0, more), mode="constant", value=-math.inf) if more else mask
    return node.make("F.pad", mask, node.sizes([0, more]), labels=("input", "pad"), mode="constant", value=-math.inf)


def _is_bool(mask: Value) -> bool:
    return mask.dtype is not None and mask.dtype.kind == "b"
