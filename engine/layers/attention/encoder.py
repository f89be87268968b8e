"""The fused encoder layer that PyTorch's fast path leaves behind in a traced nn.TransformerEncoderLayer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.attention.heads import Heads
from engine.layers.attention.multihead_operands import Arrangement
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.elementwise.activation import GELU
from engine.layers.linear.linear import apply_linear
from engine.layers.normalisation.layer_norm import LayerNorm
from engine.layers.operands.axes import may_match
from engine.layers.operands.bounds import at_least
from engine.layers.operands.precision import working_dtype
from engine.promotion import cast
from engine.tensor import Array, Shape, TensorSpec, format_shape, product

_PADDING = 1  # the mask_type of a mask (B, L)
# E is embed_dim, F the width between the two linear maps.
_WEIGHTS: Final[dict[str, tuple[str, ...]]] = {
    "qkv_weight": ("3E", "E"), "qkv_bias": ("3E",), "proj_weight": ("E", "E"), "proj_bias": ("E",),
    "norm_weight_1": ("E",), "norm_bias_1": ("E",), "norm_weight_2": ("E",), "norm_bias_2": ("E",),
    "ffn_weight_1": ("F", "E"), "ffn_bias_1": ("F",), "ffn_weight_2": ("E", "F"), "ffn_bias_2": ("E",),
}  # fmt: skip


@register("aten::_transformer_encoder_layer_fwd", positional=(
    "src", "embed_dim", "num_heads", "qkv_weight", "qkv_bias", "proj_weight", "proj_bias", "use_gelu", "norm_first",
    "eps", "norm_weight_1", "norm_bias_1", "norm_weight_2", "norm_bias_2", "ffn_weight_1", "ffn_bias_1",
    "ffn_weight_2", "ffn_bias_2", "mask", "mask_type"))  # fmt: skip
class TransformerEncoderLayer(Layer):
    """x = norm1(x + attention(x)); norm2(x + linear2(activation(linear1(x)))), or with the norms first.

    Shapes:
        src (B, L, E)  ->  (B, L, E)
    Parameters:
        mask_type: 0 for a mask (L, L), 1 for (B, L), 2 for (B, H, L, L); True, or any number but 0, is left out.
    """

    embed_dim: int
    num_heads: int
    use_gelu: bool = False
    norm_first: bool = False
    eps: float = 1e-5
    mask_type: int | None = None

    def __post_init__(self) -> None:
        if self.num_heads < 1 or self.embed_dim % self.num_heads:
            raise ParameterError(
                "embed_dim is not divisible by the number of heads", found=f"{self.embed_dim} by {self.num_heads}"
            )

    def infer(self, src: TensorSpec, *others: TensorSpec | None) -> TensorSpec:
        if src.rank != 3 or src.shape[-1] not in (None, self.embed_dim):
            raise ShapeError("src does not fit", found=format_shape(src.shape), expected=f"[B, L, {self.embed_dim}]")
        *weights, mask = [None if each is None else each.shape for each in others]
        self._check_weights(dict(zip(_WEIGHTS, weights, strict=True)))
        if mask is not None:
            self._check_mask(mask, src.shape)
        return src

    def _check_weights(self, shapes: Mapping[str, Shape | None]) -> None:
        first = shapes["ffn_weight_1"]
        sizes = {"E": self.embed_dim, "3E": 3 * self.embed_dim, "F": first[0] if first else None}
        for name, letters in _WEIGHTS.items():
            found, expected = shapes[name], tuple(sizes[letter] for letter in letters)
            if found is None or not may_match(found, expected):
                text = "None" if found is None else format_shape(found)
                raise ShapeError(f"{name} does not fit", found=text, expected=format_shape(expected))

    def _check_mask(self, mask: Shape, src: Shape) -> None:
        batch, length = src[:2]
        if self.mask_type == _PADDING:
            shapes: list[Shape] = [(batch, length)]
        else:
            stacked = None if batch is None else batch * self.num_heads
            shapes = [(length, length), (batch, self.num_heads, length, length), (stacked, length, length)]
        if not any(may_match(mask, shape) for shape in shapes):
            expected = " or ".join(map(format_shape, shapes))
            raise ShapeError("mask does not fit", found=format_shape(mask), expected=expected)

    def forward(
        self,
        src: Array,
        qkv_weight: Array,
        qkv_bias: Array,
        proj_weight: Array,
        proj_bias: Array,
        norm_weight_1: Array,
        norm_bias_1: Array,
        norm_weight_2: Array,
        norm_bias_2: Array,
        ffn_weight_1: Array,
        ffn_bias_1: Array,
        ffn_weight_2: Array,
        ffn_bias_2: Array,
        mask: Array | None = None,
    ) -> Array:
        weights = (
            *(qkv_weight, qkv_bias, proj_weight, proj_bias, norm_weight_1, norm_bias_1, norm_weight_2, norm_bias_2),
            *(ffn_weight_1, ffn_bias_1, ffn_weight_2, ffn_bias_2),
        )
        others = [None if each is None else TensorSpec(each.shape, each.dtype) for each in (*weights, mask)]
        self.infer(TensorSpec(src.shape, src.dtype), *others)
        working = working_dtype(src.dtype)
        x = cast(src, working)
        heads = Heads(
            arrangement=Arrangement(rank=3, batch_first=True, heads=self.num_heads, widths=(self.embed_dim,) * 3),
            inputs=list(zip(np.split(cast(qkv_weight, working), 3), np.split(cast(qkv_bias, working), 3), strict=True)),
            output=(cast(proj_weight, working), cast(proj_bias, working)),
            replaces=True,
        )
        masks = self._masks(mask, x.shape[1])
        norm = LayerNorm(normalized_shape=(self.embed_dim,), eps=self.eps)
        with np.errstate(all="ignore"):
            if self.norm_first:
                y = norm.forward(x, norm_weight_1, norm_bias_1)
                x = x + heads.attend((y, y, y), *masks)[0]
                y = norm.forward(x, norm_weight_2, norm_bias_2)
                x = x + self._feed_forward(y, ffn_weight_1, ffn_bias_1, ffn_weight_2, ffn_bias_2)
            else:
                x = norm.forward(x + heads.attend((x, x, x), *masks)[0], norm_weight_1, norm_bias_1)
                x = x + self._feed_forward(x, ffn_weight_1, ffn_bias_1, ffn_weight_2, ffn_bias_2)
                x = norm.forward(x, norm_weight_2, norm_bias_2)
        return cast(x, src.dtype)

    def flops(self, output: TensorSpec, *operands: object) -> int:
        weights = [spec for spec in operands[1:-1] if isinstance(spec, TensorSpec) and spec.rank == 2]
        batch, length = output.shape[0] or 0, output.shape[1] or 0
        products = sum(product(spec.shape) or 0 for spec in weights)
        return 2 * batch * length * (products + 2 * length * self.embed_dim)

    def _feed_forward(self, x: Array, weight_1: Array, bias_1: Array, weight_2: Array, bias_2: Array) -> Array:
        inner = apply_linear(x, *[cast(each, x.dtype) for each in (weight_1, bias_1)])
        active = GELU().compute(inner) if self.use_gelu else at_least(inner, 0)
        return apply_linear(active, *[cast(each, x.dtype) for each in (weight_2, bias_2)])

    def _masks(self, mask: Array | None, length: int) -> tuple[Array | None, Array | None]:
        """Return the mask as attention mask and as key padding mask."""
        if mask is None:
            return None, None
        blocked = mask != 0
        if self.mask_type == _PADDING:
            return None, blocked
        return (blocked if blocked.ndim == 2 else blocked.reshape(math.prod(blocked.shape[:-2]), length, length)), None
