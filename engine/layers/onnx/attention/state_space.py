"""Linear attention: a state summarises earlier steps."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from engine.cancellation import cancellable
from engine.errors import ParameterError, ShapeError
from engine.layers.definition.layer import NO_ANNOTATIONS, Annotations, Layer
from engine.layers.definition.registry import register
from engine.layers.operands.precision import widened
from engine.promotion import cast
from engine.tensor import Array, TensorSpec, format_shape


@register("LinearAttention", ignored=("chunk_size",))
class LinearAttention(Layer):
    """o_t = scale * S_t @ q_t, where each step adds k_t ⊗ v_t to the state S, fades it (gated) or corrects it (delta).

    The core has no recurrence over a state that is a matrix.

    Shapes:
        query (B, T, H*E), key (B, T, G*E), value (B, T, G*V), past_state (B, G, E, V),
        decay (B, T, G or G*E) in logarithms, beta (B, T, G or 1)  ->  (B, T, H*V), (B, G, E, V)
    Parameters:
        scale: 0 stands for 1 / sqrt(E).
    """

    loops = True

    kv_num_heads: int
    q_num_heads: int
    scale: float = 0.0
    update_rule: Literal["linear", "gated", "delta", "gated_delta"] = "gated_delta"
    annotations: Annotations = NO_ANNOTATIONS

    def __post_init__(self) -> None:
        if self.kv_num_heads < 1 or self.q_num_heads < 1 or self.q_num_heads % self.kv_num_heads:
            found = f"{self.q_num_heads} by {self.kv_num_heads}"
            raise ParameterError("heads do not divide into groups", found=found)

    def infer(self, query: TensorSpec, key: TensorSpec, value: TensorSpec, past_state: Any = None, *others: Any) -> Any:
        for each in (query, key, value):
            if each.rank != 3:
                raise ShapeError("operands have other axes", found=format_shape(each.shape), expected="[B, T, H*D]")
        for each, heads in ((query, self.q_num_heads), (key, self.kv_num_heads), (value, self.kv_num_heads)):
            if each.shape[2] is not None and each.shape[2] % heads:
                raise ShapeError("heads do not divide the width", found=format_shape(each.shape), expected=heads)
        width = None if query.shape[2] is None else query.shape[2] // self.q_num_heads
        depth = None if value.shape[2] is None else value.shape[2] // self.kv_num_heads
        flat = None if depth is None else depth * self.q_num_heads
        state = (query.shape[0], self.kv_num_heads, width, depth)
        dtype = past_state.dtype if isinstance(past_state, TensorSpec) else query.dtype
        results = (TensorSpec((*query.shape[:2], flat), query.dtype), TensorSpec(state, dtype))
        return results[0] if len(self.annotations.outputs) < 2 else results

    def forward(
        self,
        query: Array,
        key: Array,
        value: Array,
        past_state: Array | None = None,
        decay: Array | None = None,
        beta: Array | None = None,
    ) -> Any:
        q = self._heads(query, self.q_num_heads)
        k, v = (self._heads(each, self.kv_num_heads) for each in (key, value))
        state = np.zeros((len(query), self.kv_num_heads, q.shape[-1], v.shape[-1]), q.dtype)
        if past_state is not None:
            if past_state.shape != state.shape:
                found = format_shape(past_state.shape)
                raise ShapeError("past_state does not fit", found=found, expected=format_shape(state.shape))
            state = widened(past_state).astype(q.dtype)
        fades, corrects = self.update_rule.startswith("gated"), self.update_rule.endswith("delta")
        if (decay is None) == fades or (beta is None) == corrects:
            raise ShapeError(f"decay or beta does not go with {self.update_rule}")
        gates = None if decay is None else np.exp(self._gates(decay, q.shape[-1]))
        rates = None if beta is None else widened(beta).swapaxes(1, 2)[..., None]
        scale = q.dtype.type(self.scale or 1 / math.sqrt(max(q.shape[-1], 1)))
        outputs = np.zeros((*q.shape[:3], v.shape[-1]), q.dtype)
        group = self.q_num_heads // self.kv_num_heads
        with np.errstate(all="ignore"):
            for t in cancellable(range(q.shape[2])):
                state = state if gates is None else state * gates[:, :, t, :, None]
                added = v[:, :, t]
                if rates is not None:
                    added = rates[:, :, t] * (added - np.einsum("bhdm,bhd->bhm", state, k[:, :, t]))
                state = state + k[:, :, t, :, None] * added[:, :, None, :]
                outputs[:, :, t] = scale * np.einsum("bhdm,bhd->bhm", state.repeat(group, 1), q[:, :, t])
        y = cast(outputs.swapaxes(1, 2).reshape(*query.shape[:2], -1), query.dtype)
        kept = cast(state, query.dtype if past_state is None else past_state.dtype)
        return y if len(self.annotations.outputs) < 2 else (y, kept)

    def _heads(self, x: Array, heads: int) -> Array:
        return widened(x).reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)

    def _gates(self, decay: Array, width: int) -> Array:
        """Return one gate per head, or one per element of a head."""
        if decay.ndim != 3 or decay.shape[2] not in (self.kv_num_heads, self.kv_num_heads * width):
            raise ShapeError("decay does not fit", found=format_shape(decay.shape))
        return self._heads(decay, self.kv_num_heads)
