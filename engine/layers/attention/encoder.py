"""The fused encoder layer that PyTorch's fast path leaves behind in a traced nn.TransformerEncoderLayer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.attention.attention import MaskedAttention
from engine.layers.creation.container import formula
from engine.layers.definition.composite import CallLayer, Composite
from engine.layers.definition.layer import Annotations
from engine.layers.definition.registry import register
from engine.layers.elementwise.activation import GELU
from engine.layers.elementwise.comparison import Comparison
from engine.layers.elementwise.piecewise import ReLU
from engine.layers.linear.linear import Linear
from engine.layers.normalisation.layer_norm import LayerNorm
from engine.layers.operands.axes import may_match
from engine.layers.shape.permute import Permute, Transpose
from engine.layers.shape.shape import Flatten, Unflatten, Unsqueeze
from engine.layers.shape.split import Unbind
from engine.tensor import Array, Shape, format_shape

_THREE: Final = Annotations(outputs=(None,) * 3)
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
class TransformerEncoderLayer(Composite):
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

    def compose(
        self,
        call: CallLayer,
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
    ) -> Any:
        if len(src.shape) != 3 or src.shape[-1] not in (None, self.embed_dim):
            raise ShapeError("src does not fit", found=format_shape(src.shape), expected=f"[B, L, {self.embed_dim}]")
        weights = (
            *(qkv_weight, qkv_bias, proj_weight, proj_bias, norm_weight_1, norm_bias_1, norm_weight_2, norm_bias_2),
            *(ffn_weight_1, ffn_bias_1, ffn_weight_2, ffn_bias_2),
        )
        shapes = [None if each is None else each.shape for each in weights]
        self._check_weights(dict(zip(_WEIGHTS, shapes, strict=True)))
        layer_norm = LayerNorm(normalized_shape=(self.embed_dim,), eps=self.eps)
        masks = [] if mask is None else [self._mask(call, mask, src.shape)]

        def attended(x: Any) -> Any:
            projected = call(Linear(), x, qkv_weight, qkv_bias)
            heads = call(Unflatten(dim=2, sizes=(3, self.num_heads, self.embed_dim // self.num_heads)), projected)
            query, key, value = call(Unbind(annotations=_THREE), call(Permute(dims=(2, 0, 3, 1, 4)), heads))
            found = call(MaskedAttention(), query, key, value, *masks)
            joined = call(Flatten(start_dim=2), call(Transpose(dim0=1, dim1=2), found))
            return call(Linear(), joined, proj_weight, proj_bias)

        def fed_forward(x: Any) -> Any:
            inner = call(Linear(), x, ffn_weight_1, ffn_bias_1)
            return call(Linear(), call(GELU() if self.use_gelu else ReLU(), inner), ffn_weight_2, ffn_bias_2)

        x: Any = src
        for part, weight, bias in ((attended, norm_weight_1, norm_bias_1), (fed_forward, norm_weight_2, norm_bias_2)):
            changed = part(call(layer_norm, x, weight, bias) if self.norm_first else x)
            x = formula(call, "add(@0,@1)", x, changed)
            x = x if self.norm_first else call(layer_norm, x, weight, bias)
        return x

    def _mask(self, call: CallLayer, mask: Array, src: Shape) -> Any:
        """Return where the mask hides a key from a query, to be broadcast against (B, H, L, L)."""
        self._check_mask(mask.shape, src)
        hidden = mask if mask.dtype == np.bool_ else call(Comparison(function="ne"), mask, 0)
        if self.mask_type == _PADDING:
            return call(Unsqueeze(dim=(1, 2)), hidden)
        return call(Unflatten(dim=0, sizes=(-1, self.num_heads)), hidden) if len(mask.shape) == 3 else hidden

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
