"""Computation of multi-head attention, independent of the roles of operands and the source of weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.layers.attention.attention import exponentials
from engine.layers.attention.multihead_operands import Arrangement
from engine.layers.linear.linear import apply_linear
from engine.layers.linear.matmul import matmul
from engine.layers.normalisation.softmax import softmax
from engine.promotion import cast
from engine.tensor import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """Computation of attention on arrays of one dtype.

    Args:
        arrangement: the layout of sequences, and the number of heads.
        inputs: weight (E, width) and bias (E,) or None of the projections of query, key and value.
        output: weight (E, E) and bias (E,) or None of the projection after attention.
        added: key and value (E,) of the positions that are added to every sequence.
        replaces: whether -inf replaces a score that a boolean masks out; else it is added, and NaN stays.
    """

    arrangement: Arrangement
    inputs: Sequence[tuple[Array, Array | None]]
    output: tuple[Array, Array | None]
    added: Sequence[tuple[Array, Array]] = ()
    replaces: bool = False

    def attend(
        self,
        sequences: Sequence[Array],
        attention_mask: Array | None = None,
        padding_mask: Array | None = None,
        *,
        wants_weights: bool = False,
    ) -> tuple[Array, Array]:
        """Return the attention of query, key and value in their layout, and the weights (B, H, L, S)."""
        q, k, v = (self._split(apply_linear(x, *into)) for x, into in zip(sequences, self.inputs, strict=True))
        keys = k.shape[2]
        for key, value in self.added:
            k, v = self._with_position(k, key), self._with_position(v, value)
        scores = matmul(q * (1 / math.sqrt(q.shape[-1])), k.swapaxes(-1, -2))
        for mask in self._aligned(attention_mask, padding_mask, scores.shape):
            self._leave_out(scores[..., :keys], mask)
        if wants_weights:
            weights = softmax(scores, -1)
            return self._join(matmul(weights, v)), weights
        weights, totals = exponentials(scores)
        return self._join(matmul(weights, v) / totals), weights

    def _split(self, x: Array) -> Array:
        """Return a projected sequence as (B, H, L, width of a head)."""
        x = self.arrangement.to_batch_first(x)
        heads = self.arrangement.heads
        return x.reshape(*x.shape[:2], heads, x.shape[-1] // heads).transpose(0, 2, 1, 3)

    def _join(self, x: Array) -> Array:
        """Return the projected output of (B, H, L, width of a head)."""
        x = self.arrangement.from_batch_first(x.transpose(0, 2, 1, 3))
        return apply_linear(x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1]), *self.output)

    def _with_position(self, x: Array, position: Array) -> Array:
        batch, heads, _, width = x.shape
        return np.concatenate([x, np.broadcast_to(position.reshape(1, heads, 1, width), (batch, heads, 1, width))], 2)

    def _aligned(self, attention: Array | None, padding: Array | None, scores: tuple[int, ...]) -> list[Array]:
        """Return the masks, to be broadcast against the scores (B, H, L, S)."""
        masks = []
        if attention is not None:
            lead = scores[:2] if attention.ndim == 3 else ()
            masks.append(attention.reshape(*lead, *attention.shape[-2:]))
        if padding is not None:
            masks.append(padding.reshape(math.prod(padding.shape[:-1]), 1, 1, padding.shape[-1]))
        return masks

    def _leave_out(self, scores: Array, mask: Array) -> None:
        """Apply a mask in place: True masks out, a number is added."""
        if mask.dtype == np.bool_ and self.replaces:
            np.copyto(scores, -np.inf, where=mask)
        else:
            scores += cast(np.where(mask, -np.inf, 0.0) if mask.dtype == np.bool_ else mask, scores.dtype)
