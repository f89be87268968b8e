"""Attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.attention.attention import exponentials
from engine.layers.definition.layer import NO_ANNOTATIONS, Annotations, Layer
from engine.layers.definition.registry import register
from engine.layers.onnx.operands.adapter import check_fits, only_present, selected
from engine.layers.operands.axes import may_equal, may_match
from engine.layers.operands.precision import widened
from engine.layers.operands.spatial import FLOATING, REAL, tensor
from engine.promotion import Category, broadcast_shapes, cast
from engine.tensor import Array, Dim, TensorSpec, format_shape, spec_of

_RESULTS = ("the attention", "the keys", "the values", "the scores")


@register("Attention", ignored=("softmax_precision",))
class OnnxAttention(Layer):
    """softmax(query @ key.T * scale + mask) @ value, after prepending cached keys and values.

    The core has no attention that also returns scores, caps them, or hides keys by windows and lengths of rows.

    Shapes:
        query (B, H, L, E), key (B, G, S, E), value (B, G, S, V), or (B, L, H*E) and so on with q_num_heads and
        kv_num_heads; attn_mask broadcast to (B, H, L, P + S), past_key (B, G, P, E), past_value (B, G, P, V);
        nonpad_kv_seqlen (B,), integers: number of keys before the padding
        ->  as query with V; present_key, present_value (B, G, P + S, ...); scores (B, H, L, P + S)
    Parameters:
        softcap: softcap * tanh(scores / softcap) in place of the scores.
        left_window_size, right_window_size: number of keys attended to on either side; -1 for all.
        qk_matmul_output_mode: scores returned: 0 the products, 1 after softcap, 2 after the mask, 3 the weights.
    """

    is_causal: bool = False
    kv_num_heads: int | None = None
    q_num_heads: int | None = None
    qk_matmul_output_mode: int = 0
    scale: float | None = None
    softcap: float = 0.0
    left_window_size: int = -1
    right_window_size: int = -1
    annotations: Annotations = NO_ANNOTATIONS

    def __post_init__(self) -> None:
        if self.qk_matmul_output_mode not in (0, 1, 2, 3):
            raise ParameterError("unknown qk_matmul_output_mode", found=self.qk_matmul_output_mode, expected="0 to 3")

    def infer(self, query: TensorSpec, key: TensorSpec, value: TensorSpec, *others: TensorSpec | None) -> Any:
        results = self._specs(query, key, value, (*others, *(None,) * (4 - len(others))))
        return selected(results, only_present(results, self.annotations, _RESULTS))

    def forward(
        self,
        query: Array,
        key: Array,
        value: Array,
        attn_mask: Array | None = None,
        past_key: Array | None = None,
        past_value: Array | None = None,
        nonpad_kv_seqlen: Array | None = None,
    ) -> Any:
        others = (attn_mask, past_key, past_value, nonpad_kv_seqlen)
        q_spec, k_spec, v_spec = self._as_specs((query, key, value))
        specs = self._specs(q_spec, k_spec, v_spec, [None if each is None else spec_of(each) for each in others])
        mask, past, lengths = self._identified(others)
        q = _by_heads(widened(query), self.q_num_heads)
        k, v = (_by_heads(widened(x), self.kv_num_heads) for x in (key, value))
        if past:
            k, v = (np.concatenate([widened(old), new], axis=2) for old, new in zip(past, (k, v), strict=True))
        with np.errstate(all="ignore"):
            y, scores = self._attend(q, k, v, mask, lengths, past[0].shape[2] if past else 0)
        if query.ndim == 3:
            y = y.swapaxes(1, 2).reshape(*query.shape[:2], -1)
        results = [cast(each, query.dtype) for each in (y, k, v, scores)]
        return selected(results, only_present(specs, self.annotations, _RESULTS))

    def _attend(
        self, q: Array, k: Array, v: Array, mask: Array | None, lengths: Array | None, past: int
    ) -> tuple[Array, Array]:
        scale = math.sqrt(1 / math.sqrt(max(q.shape[-1], 1)) if self.scale is None else self.scale)
        groups = q.shape[1] // max(k.shape[1], 1)
        keys, values = (np.repeat(x, groups, axis=1) for x in (k, v))
        scores = (q * q.dtype.type(scale)) @ (keys.swapaxes(-1, -2) * q.dtype.type(scale))
        stages = [scores]
        capped = self.softcap * np.tanh(scores / self.softcap) if self.softcap else scores
        stages.append(capped)
        masked = capped + _bias(mask, scores.shape, scores.dtype)
        places, rows = np.arange(scores.shape[-1]), np.arange(scores.shape[-2])[:, None]
        ends = None if lengths is None else lengths.astype(np.int64).reshape(-1, 1, 1, 1)
        if ends is not None:
            masked = np.where(places < ends, masked, -np.inf)
        if self.is_causal:
            # Position l sees all that came before this call, and the l + 1 first of it; with lengths, the last
            # position sees all keys that count.
            masked = np.where(places <= rows + (past if ends is None else ends - len(rows)), masked, -np.inf)
        own = rows + (past if ends is None else ends - len(rows))
        if self.left_window_size >= 0:
            masked = np.where(places >= own - self.left_window_size, masked, -np.inf)
        if self.right_window_size >= 0:
            masked = np.where(places <= own + self.right_window_size, masked, -np.inf)
        stages.append(masked)
        weights, totals = exponentials(np.array(masked))
        weights /= totals
        stages.append(weights)
        return weights @ values, stages[self.qk_matmul_output_mode]

    def _identified(self, others: Sequence[Any]) -> tuple[Any, Any, Any]:
        """Return the mask, the cached keys and values, and the lengths of padded keys."""
        given = [each for each in others if each is not None]
        if self.annotations.are_named:
            mask, past_key, past_value, lengths = others
            past = tuple(each for each in (past_key, past_value) if each is not None)
        else:
            mask, past, lengths = _by_spec(given)
        if past and lengths is not None:
            found = f"{3 + len(given)} operands"
            raise ShapeError("lengths of padded keys beside keys of earlier steps", found=found, expected="one of them")
        if len(past) == 1:
            raise ShapeError("keys of earlier steps come with values", found="one of them", expected="both, or none")
        return mask, past, lengths

    def _as_specs(self, others: Any) -> list[TensorSpec]:
        return [TensorSpec(x.shape, x.dtype) for x in others]

    def _specs(self, query: TensorSpec, key: TensorSpec, value: TensorSpec, others: Any) -> list[TensorSpec]:
        for each in (query, key, value):
            tensor(each, "operand", FLOATING)
        q = _head_shape(query, self.q_num_heads)
        k, v = (_head_shape(each, self.kv_num_heads) for each in (key, value))
        mask, past, lengths = self._identified(others)
        for name, shape in (("key", k), ("value", v)):
            check_fits(shape[0] == 1 or may_equal(shape[0], q[0]), name, shape, f"a batch of {q[0]}")
        for old, new in zip(past, (k, v), strict=False):
            expected = (*new[:2], past[0].shape[-2], new[3]) if len(old.shape) == 4 else new
            check_fits(may_match(old.shape, expected), "past", old.shape, f"{format_shape(new)} but for the length")
        if lengths is not None:
            count = lengths.shape[0] if lengths.shape else 1  # the converter writes one number without its axis
            check_fits(may_equal(count, q[0]), "lengths of padded keys", lengths.shape, format_shape(q[:1]))
        if q[1] is not None and k[1] is not None and (not k[1] or q[1] % k[1]):
            raise ShapeError("heads do not divide into groups", found=f"{q[1]} by {k[1]}")
        fits = all(None in pair or pair[0] == pair[1] for pair in ((q[3], k[3]), (k[2], v[2]), (k[1], v[1])))
        found = ", ".join(map(format_shape, (q, k, v)))
        if not fits:
            raise ShapeError("query, key and value do not fit", found=found)
        earlier: Dim = past[0].shape[2] if past else 0
        total = None if k[2] is None or earlier is None else k[2] + earlier
        scores = (q[0], q[1], q[2], total)
        if mask is not None:
            _check_mask(mask, scores)
        flat = None if q[1] is None or v[3] is None else q[1] * v[3]
        y = (q[0], q[2], flat) if query.rank == 3 else (*q[:3], v[3])
        shapes = (y, (*k[:2], total, k[3]), (*v[:2], total, v[3]), scores)
        return [TensorSpec(shape, query.dtype) for shape in shapes]


def _by_spec(others: Sequence[Any]) -> tuple[Any, Any, Any]:
    """Identify operands by rank and dtype, because pnnx's converter omits optional ones without a trace.

    Returns:
        the mask; the cached keys and values, always both; the lengths of padded keys, a vector of integers.
    """
    *front, last = others or [None]
    if last is not None and last.dtype.kind == "i" and len(last.shape) < 2:
        return (front[0] if front else None), tuple(front[1:]), last
    if len(others) > 3:
        raise ShapeError("too many operands", found=3 + len(others), expected="the fourth of the others an i64 vector")
    if len(others) in (2, 3):
        return (others[0] if len(others) == 3 else None), tuple(others[-2:]), None
    return (others[0] if others else None), (), None


def _check_mask(mask: TensorSpec, scores: tuple[Dim, ...]) -> None:
    """Refuse a mask that does not broadcast to the scores; it may omit keys at the end."""
    tensor(mask, "attn_mask", REAL | {Category.BOOL})
    *lead, keys = mask.shape or (None,)
    fits = bool(mask.shape) and (None in (keys, scores[-1]) or (keys or 0) <= (scores[-1] or 0))
    fits = fits and len(mask.shape) <= len(scores) and may_match(broadcast_shapes((*lead, 1), scores), scores)
    check_fits(fits, "attn_mask", mask.shape, f"one that broadcasts to {format_shape(scores)}")


def _bias(mask: Array | None, shape: tuple[int, ...], dtype: Any) -> Array:
    if mask is None:
        return np.zeros((), dtype)
    mask = mask if mask.dtype == np.bool_ else cast(mask, dtype)
    if mask.shape[-1] < shape[-1]:  # keys without a mask element are hidden
        edges = [(0, 0)] * (mask.ndim - 1) + [(0, shape[-1] - mask.shape[-1])]
        mask = np.pad(mask, edges, constant_values=False if mask.dtype == np.bool_ else -np.inf)
    if mask.dtype == np.bool_:
        return np.where(mask, 0, -np.inf).astype(dtype)
    return mask


def _head_shape(spec: TensorSpec, heads: int | None) -> tuple[Dim, ...]:
    if spec.rank == 4:
        return spec.shape
    check_fits(spec.rank == 3, "operand", spec.shape, "3 or 4 axes")
    n, length, width = spec.shape
    if not heads or heads < 1 or (width is not None and width % heads):
        raise ShapeError("the width does not divide into heads", found=format_shape(spec.shape), expected=heads)
    return (n, heads, length, None if width is None else width // heads)


def _by_heads(x: Array, heads: int | None) -> Array:
    if x.ndim == 4:
        return x
    return x.reshape(*x.shape[:2], heads or 1, -1).swapaxes(1, 2)
