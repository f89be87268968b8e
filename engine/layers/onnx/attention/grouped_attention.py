"""Attention of decoders as in onnxruntime: grouped heads, cached keys, rows of different lengths."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.ir.dims import plain
from engine.layers.attention.attention import exponentials
from engine.layers.definition.layer import NO_ANNOTATIONS, Annotations, Layer
from engine.layers.definition.registry import register
from engine.layers.onnx.operands.adapter import check_fits, selected
from engine.layers.operands.precision import widened
from engine.layers.operands.spatial import FLOATING, tensor
from engine.limits import check_size
from engine.promotion import cast
from engine.tensor import Array, Dim, TensorSpec, format_shape, known_value


def _room(past: Any, total: Any, length: Dim) -> Dim:
    """Return the capacity for keys; None if it is known only at run time."""
    most, room = known_value(total), past.shape[2] if isinstance(past, TensorSpec) else 0
    if not isinstance(most, np.ndarray | int) or np.size(most) != 1 or room is None:
        return None
    count = plain(np.reshape(most, ()).item())
    # The usual case first: symbolic sizes of a cache that grows are then known to be equal.
    return count if length is not None and count == room + length else max(room, count)


@register("GroupQueryAttention")
class GroupQueryAttention(Layer):
    """Causal attention with grouped heads and cached keys and values.

    The core has no scatter into a growing state whose rows have different lengths.

    Shapes:
        query (B, S, H*E), key and value (B, S, G*E), or all of them in query (B, S, (H + 2*G)*E); past_key and
        past_value (B, G, P, E); seqlens_k (B,), the keys of each row but one; total_sequence_length, one number;
        caches (positions, R/2); position_ids (B, S); attention_bias broadcast to (B, H, S, T); head_sink (H,)
        ->  (B, S, H*E), and keys and values (B, G, max(P, T), E) with T = total_sequence_length
    Parameters:
        local_window_size: number of keys attended to, the own position included; -1 for all.
        do_rotary, rotary_interleaved: apply rotary embeddings to queries and keys first, to neighbouring pairs.
        smooth_softmax: add a score of 0 without a value to the softmax.
    """

    num_heads: int
    kv_num_heads: int
    scale: float = 0.0
    local_window_size: int = -1
    do_rotary: bool = False
    rotary_interleaved: bool = False
    softcap: float = 0.0
    smooth_softmax: int = 0
    annotations: Annotations = NO_ANNOTATIONS

    def __post_init__(self) -> None:
        if self.kv_num_heads < 1 or self.num_heads < 1 or self.num_heads % self.kv_num_heads:
            found = f"{self.num_heads} by {self.kv_num_heads}"
            raise ParameterError("heads do not divide into groups", found=found)

    def infer(
        self,
        query: TensorSpec,
        key: Any = None,
        value: Any = None,
        past_key: Any = None,
        past_value: Any = None,
        seqlens_k: Any = None,
        total_sequence_length: Any = None,
        cos_cache: Any = None,
        sin_cache: Any = None,
        position_ids: Any = None,
        attention_bias: Any = None,
        head_sink: Any = None,
    ) -> Any:
        size = self._size(query, key)
        batch, length = query.shape[:2]
        result = TensorSpec((batch, length, None if size is None else self.num_heads * size), query.dtype)
        kept: tuple[Dim, ...] = (batch, self.kv_num_heads, _room(past_key, total_sequence_length, length), size)
        specs = [result, *[TensorSpec(kept, query.dtype)] * 2]
        return selected(specs, range(len(self.annotations.outputs)))

    def _size(self, query: Any, key: Any) -> Dim:
        """Return the width of a head."""
        spec = tensor(query, "query", FLOATING)
        heads = self.num_heads + (2 * self.kv_num_heads if key is None else 0)
        check_fits(spec.rank == 3, "query", spec.shape, "3 axes")
        width = spec.shape[2]
        if width is not None and (not width or width % heads):
            raise ShapeError("the width does not divide into heads", found=format_shape(spec.shape), expected=heads)
        return None if width is None else width // heads

    def forward(
        self,
        query: Array,
        key: Array | None = None,
        value: Array | None = None,
        past_key: Array | None = None,
        past_value: Array | None = None,
        seqlens_k: Array | None = None,
        total_sequence_length: Any = None,
        cos_cache: Array | None = None,
        sin_cache: Array | None = None,
        position_ids: Array | None = None,
        attention_bias: Array | None = None,
        head_sink: Array | None = None,
    ) -> Any:
        size = self._size(query, key) or 0
        q, k, v = self._heads(query, key, value, size)
        totals, total = self._totals(seqlens_k, total_sequence_length, q)
        length = q.shape[2]
        before = np.zeros_like(totals) if total == length else totals - length
        room = 0 if past_key is None else past_key.shape[2]
        for past in (past_key, past_value):
            expected = (len(q), self.kv_num_heads, room, size)
            check_fits(
                past is None or past.shape == expected, "past", () if past is None else past.shape, str(expected)
            )
        if (past_key is None) != (past_value is None) or before.max(initial=0) > room:
            raise ShapeError("keys of earlier steps are missing", found=room, expected=int(before.max(initial=0)))
        if self.do_rotary:
            places = before[:, None] + np.arange(length) if position_ids is None else position_ids
            turned = (self._turned(each, cos_cache, sin_cache, places) for each in (q, k))
            q, k = (widened(cast(each, query.dtype)) for each in turned)  # onnxruntime stores them
        if attention_bias is not None:
            fits = attention_bias.ndim == 4 and len(attention_bias) in (1, len(q))
            check_fits(fits, "attention_bias", attention_bias.shape, f"[{len(q)}, ?, ?, ?]")
        kept = [self._appended(new, past, before, max(room, total)) for new, past in ((k, past_key), (v, past_value))]
        y = np.zeros(q.shape, q.dtype)
        with np.errstate(all="ignore"):
            for row in range(len(q)):
                end = int(max(totals[row], before[row] + length))
                bias = None if attention_bias is None else attention_bias[row % len(attention_bias)]
                keys, values = (each[row, :, :end] for each in kept)
                y[row] = self._attend(q[row], keys, values, int(before[row]), bias, head_sink)
        result = cast(y.swapaxes(1, 2).reshape(*query.shape[:2], -1), query.dtype)
        results = [result, *(cast(each, query.dtype) for each in kept)]
        return selected(results, range(len(self.annotations.outputs)))

    def _heads(self, query: Array, key: Array | None, value: Array | None, size: int) -> list[Array]:
        """Return queries (B, H, S, E), keys and values (B, G, S, E)."""
        if (key is None) != (value is None):
            raise ShapeError("keys come with values", found="one of them")
        if key is None or value is None:
            ends = [self.num_heads * size, (self.num_heads + self.kv_num_heads) * size]
            parts = np.split(query, ends, axis=2)
        else:
            parts = [query, key, value]
        for part in parts[1:]:
            expected = (*query.shape[:2], self.kv_num_heads * size)
            check_fits(part.shape == expected, "key or value", part.shape, format_shape(expected))
        return [widened(part).reshape(*part.shape[:2], -1, size).swapaxes(1, 2) for part in parts]

    def _totals(self, seqlens_k: Any, total_sequence_length: Any, q: Array) -> tuple[Array, int]:
        """Return the number of keys of each row, and the maximum."""
        if seqlens_k is None or total_sequence_length is None:
            raise ShapeError("the numbers of keys are needed", expected="seqlens_k and total_sequence_length")
        totals, total = np.asarray(seqlens_k).astype(np.int64).reshape(-1) + 1, np.asarray(total_sequence_length)
        check_fits(totals.shape == (len(q),), "seqlens_k", totals.shape, f"[{len(q)}]")
        most = int(total.reshape(-1)[0]) if total.size == 1 else -1
        if most < q.shape[2] or totals.min(initial=most) < 1 or totals.max(initial=0) > most:
            found = f"rows of {totals.tolist()[:8]} keys, {most} at most, {q.shape[2]} new"
            raise ShapeError("the numbers of keys do not fit", found=found)
        if most != q.shape[2] and totals.min(initial=most) < q.shape[2]:
            raise ShapeError("a row has fewer keys than are new", found=int(totals.min()), expected=q.shape[2])
        return totals, most

    def _turned(self, x: Array, cos: Array | None, sin: Array | None, places: Array) -> Array:
        if cos is None or sin is None:
            raise ShapeError("angles are needed", expected="cos_cache and sin_cache")
        places = np.asarray(places)
        if places.dtype.kind not in "iu":
            raise ShapeError("a position is no integer", found=places.dtype)
        for cache in (cos, sin):
            check_fits((cache.ndim, places.ndim) == (2, 2), "cache", cache.shape, "2 axes, as the positions")
            if places.size and not 0 <= places.min() <= places.max() < len(cache):
                raise ShapeError("a position lies outside the cache", found=f"{places.min()} to {places.max()}")
        half, (batch, _, length, size) = cos.shape[1], x.shape
        if not 0 < 2 * half <= size:
            raise ShapeError("no such part of a head", found=2 * half, expected=f"an even number up to {size}")
        cosines, sines = (each[places].astype(x.dtype)[:, None] for each in (cos, sin))
        for each in (cosines, sines):
            fits = each.shape == (batch, 1, length, half)
            check_fits(fits, "cache", each.shape, f"{(batch, 1, length, half)}")
        first, second = slice(0, half), slice(half, 2 * half)
        if self.rotary_interleaved:
            first, second = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
        result = x.copy()
        result[..., first] = x[..., first] * cosines - x[..., second] * sines
        result[..., second] = x[..., first] * sines + x[..., second] * cosines
        return result

    def _appended(self, new: Array, past: Array | None, before: Array, room: int) -> Array:
        """Append new keys or values to the cached ones, and zeros up to the capacity."""
        shape = (*new.shape[:2], room, new.shape[3])
        check_size(shape, new.dtype)
        whole = np.zeros(shape, new.dtype)
        for row, first in enumerate(before):
            if past is not None:
                whole[row, :, :first] = past[row, :, :first]
            whole[row, :, first : first + new.shape[2]] = new[row]
        return whole

    def _attend(self, q: Array, k: Array, v: Array, before: int, bias: Array | None, sink: Array | None) -> Array:
        """Compute the attention of one row of the batch, (H, S, E)."""
        groups = self.num_heads // self.kv_num_heads
        keys, values = (np.repeat(x, groups, axis=0) for x in (k, v))
        scale = self.scale or 1 / math.sqrt(max(q.shape[-1], 1))
        scores = (q * q.dtype.type(scale)) @ keys.swapaxes(-1, -2)
        if self.softcap:
            scores = self.softcap * np.tanh(scores / self.softcap)
        if bias is not None:
            scores = scores + widened(bias)[..., : scores.shape[-1]]
        places, own = np.arange(scores.shape[-1]), before + np.arange(q.shape[1])[:, None]
        is_seen = places <= own
        if self.local_window_size >= 0:
            is_seen &= places > own - max(self.local_window_size, 1)
        masked = np.where(is_seen, scores, -np.inf).astype(q.dtype)
        if sink is not None or self.smooth_softmax == 1:
            level = np.zeros(len(q)) if sink is None else np.asarray(sink, np.float64).reshape(-1)
            check_fits(level.shape == (len(q),), "head_sink", level.shape, f"[{len(q)}]")
            column = np.broadcast_to(level.astype(q.dtype)[:, None, None], (*masked.shape[:2], 1))
            weights, totals = exponentials(np.concatenate([masked, column], axis=-1))
            return np.asarray((weights / totals)[..., :-1] @ values)
        weights, totals = exponentials(masked)
        return np.asarray(weights @ values / totals)
