"""Scaled dot-product attention: softmax(query @ key.T * scale + mask) @ value."""

from __future__ import annotations

import math

import numpy as np

from engine.errors import ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.linear.matmul import matmul
from engine.layers.operands.axes import may_equal, sizes
from engine.layers.operands.precision import working_dtype
from engine.promotion import broadcast_shapes, cast, promote_types
from engine.tensor import Array, DType, Shape, TensorSpec, format_shape, product


@register("F.scaled_dot_product_attention", ignored=("dropout_p",))
class ScaledDotProductAttention(Layer):
    """softmax(query @ key.T * scale + mask) @ value; a row whose every position is masked gives zeros.

    Shapes:
        query (..., H, L, E), key (..., H, S, E), value (..., H, S, V), attn_mask broadcast to (..., H, L, S)
        ->  (..., H, L, V)
        With enable_gqa key and value may have fewer heads, each serving as many neighbouring heads of the query.
    Dtypes:
        floating; attn_mask bool (True takes part) or floating (added to the scores).
    Parameters:
        is_causal: position l attends to positions 0 to l only.
        scale: None stands for 1 / sqrt(E).
    """

    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False

    def infer(
        self, query: TensorSpec, key: TensorSpec, value: TensorSpec, attn_mask: TensorSpec | None = None
    ) -> TensorSpec:
        shape = self._shape(query.shape, key.shape, value.shape, None if attn_mask is None else attn_mask.shape)
        return TensorSpec(shape, _common(query.dtype, key.dtype, value.dtype))

    def forward(self, query: Array, key: Array, value: Array, attn_mask: Array | None = None) -> Array:
        dtype = _common(query.dtype, key.dtype, value.dtype)
        q, k, v = (cast(each, working_dtype(dtype)) for each in (query, key, value))
        if self.enable_gqa:
            k, v = (_for_every_head(each, q) for each in (k, v))
        with np.errstate(all="ignore"):
            scores = _masked(matmul(q * self.scale_of(q.shape[-1]), k.swapaxes(-1, -2)), attn_mask)
            if self.is_causal:
                scores = np.where(np.tri(*scores.shape[-2:], dtype=np.bool_), scores, scores.dtype.type(-np.inf))
            weights, totals = exponentials(scores)
            return cast(matmul(weights, v) / totals, dtype)

    def flops(self, output: TensorSpec, *operands: object) -> int:
        query, key = operands[0], operands[1]
        if not (isinstance(query, TensorSpec) and isinstance(key, TensorSpec)):
            return 0
        rows = product(output.shape[:-1]) or 0
        return 2 * rows * (key.shape[-2] or 0) * ((query.shape[-1] or 0) + (output.shape[-1] or 0))

    def scratch_bytes(self, output: TensorSpec, *operands: object) -> int:
        """Return the bytes of two tables of a score for each query and key."""
        query, key = operands[0], operands[1]
        if not (isinstance(query, TensorSpec) and isinstance(key, TensorSpec)):
            return 0
        return 2 * (product(output.shape[:-1]) or 0) * (key.shape[-2] or 0) * max(4, output.dtype.itemsize)

    def scale_of(self, width: int) -> float:
        """Return the factor of the scores of heads of this width."""
        return 1 / math.sqrt(max(width, 1)) if self.scale is None else self.scale

    def _shape(self, query: Shape, key: Shape, value: Shape, mask: Shape | None) -> Shape:
        fits = min(len(query), len(key), len(value)) >= 2
        if not fits or not may_equal(query[-1], key[-1]) or not may_equal(key[-2], value[-2]):
            found = ", ".join(map(format_shape, (query, key, value)))
            expected = "[..., L, E], [..., S, E], [..., S, V]"
            raise ShapeError("query, key and value do not fit", found=found, expected=expected)
        lead = broadcast_shapes(query[:-2], self._grouped(query, key), self._grouped(query, value))
        scores: Shape = (*lead, query[-2], key[-2])
        if mask is not None:
            scores = _masked_shape(scores, mask)
        return (*scores[:-1], value[-1])

    def _grouped(self, query: Shape, other: Shape) -> Shape:
        """Return the leading axes of key or value, with every head repeated for the heads it serves."""
        if not self.enable_gqa or len(other) < 3 or len(query) < 3:
            return other[:-2]
        heads, groups = query[-3], other[-3]
        if heads is not None and groups is not None and (groups == 0 or heads % groups):
            raise ShapeError("heads are not divisible by groups", found=f"{heads} by {groups}")
        return (*other[:-3], heads)


@register("engine.Attention")
class MaskedAttention(ScaledDotProductAttention):
    """Attention with any number of masks: True leaves a key out, a number is added to the score."""

    def infer(  # type: ignore[override]
        self, query: TensorSpec, key: TensorSpec, value: TensorSpec, *masks: TensorSpec
    ) -> TensorSpec:
        specs = [super(MaskedAttention, self).infer(query, key, value, mask) for mask in (None, *masks)]
        return specs[-1]

    def forward(self, query: Array, key: Array, value: Array, *masks: Array) -> Array:  # type: ignore[override]
        added = [np.where(mask, -np.inf, 0.0) if mask.dtype == np.bool_ else mask for mask in masks]
        return super().forward(query, key, value, np.asarray(sum(added)) if added else None)


@register("engine.AttentionMask")
class AttentionMask(Layer):
    """A mask (L, S) or (B, S), whichever fits, as it broadcasts to the scores (B, H, L, S) of a query and a key.

    Parameters:
        prefers_queries: whether it is (L, S) if both fit.
    """

    does_arithmetic = False

    prefers_queries: bool = False

    def infer(self, mask: TensorSpec, query: TensorSpec, key: TensorSpec) -> TensorSpec:
        is_open = not (mask.is_static and query.is_static and key.is_static)
        shape = (None, 1, None, mask.shape[-1]) if is_open else self._shape(mask.shape, query.shape, key.shape)
        return TensorSpec(shape, mask.dtype)

    def forward(self, mask: Array, query: Array, key: Array) -> Array:
        return mask.reshape(sizes(self._shape(mask.shape, query.shape, key.shape)))

    def _shape(self, mask: Shape, query: Shape, key: Shape) -> Shape:
        is_attention, is_padding = mask == (query[-2], key[-2]), mask == (query[0], key[-2])
        if is_attention == is_padding and not (is_attention and self.prefers_queries):
            found, expected = format_shape(mask), "[L, S] or [B, S], L not B"
            raise ShapeError("attention mask and key padding mask are ambiguous", found=found, expected=expected)
        return (1, 1, *mask) if is_attention else (mask[0], 1, 1, mask[1])


@register("engine.CausalMask")
class CausalMask(Layer):
    """Additive causal mask: 0 for keys up to the position, minus infinity for later ones.

    Shapes:
        query (..., L, E), key (..., S, E), past (..., P, E)  ->  (L, S); position l sees the first P + l + 1 keys
    """

    def infer(self, query: TensorSpec, key: TensorSpec, past: TensorSpec | None = None) -> TensorSpec:
        for each in (query, key):
            if each.rank < 2:
                raise ShapeError("operand does not fit", found=format_shape(each.shape), expected="2 axes or more")
        return TensorSpec((query.shape[-2], key.shape[-2]), query.dtype)

    def forward(self, query: Array, key: Array, past: Array | None = None) -> Array:
        rows, columns = query.shape[-2], key.shape[-2]
        before = 0 if past is None else past.shape[-2]
        is_seen = np.tri(rows, columns, before, dtype=np.bool_)
        return np.where(is_seen, 0, -np.inf).astype(query.dtype)


def _masked_shape(scores: Shape, mask: Shape) -> Shape:
    """Return the shape of scores with a mask added: it may determine dynamic sizes, but change none."""
    shape = broadcast_shapes(mask, scores)
    if len(shape) != len(scores) or not all(map(may_equal, shape, scores)):
        found, expected = format_shape(mask), format_shape(scores)
        raise ShapeError("attn_mask does not broadcast to the scores", found=found, expected=expected)
    return shape


def exponentials(scores: Array) -> tuple[Array, Array]:
    """Compute exp(scores - maximum) of every row in place, and the sums; rows of -inf give zeros and a sum of 1."""
    maxima = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    maxima[maxima == -np.inf] = 0
    scores -= maxima
    np.exp(scores, out=scores)
    totals = scores.sum(axis=-1, keepdims=True)
    totals[totals == 0] = 1
    return scores, totals


def _masked(scores: Array, mask: Array | None) -> Array:
    """Return the scores with a mask added: for booleans 0 where True and -inf where False, so that NaN is kept."""
    if mask is None:
        return scores
    if mask.dtype == np.bool_:
        mask = np.where(mask, 0.0, -np.inf)
    return scores + cast(mask, scores.dtype)


def _for_every_head(x: Array, query: Array) -> Array:
    """Return keys or values with every head repeated for the query heads that it serves."""
    if x.ndim < 3 or query.ndim < 3:
        return x
    return np.repeat(x, query.shape[-3] // x.shape[-3], axis=-3)


def _common(query: DType, key: DType, value: DType) -> DType:
    return promote_types(promote_types(query, key), value)
