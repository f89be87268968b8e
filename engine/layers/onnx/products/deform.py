"""Deformable convolution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from engine.layers.convolution.deform import DeformConv2d
from engine.layers.convolution.pad import extend, padded_shape
from engine.layers.definition.registry import register
from engine.layers.onnx.operands.adapter import shape_of
from engine.layers.onnx.operands.padding import Pair, pairs_of
from engine.layers.onnx.products.conv import Windowed
from engine.layers.operands.spatial import Operand
from engine.tensor import Array, TensorSpec


@register("DeformConv", positional=("input", "weight", "offset", "bias", "mask"))
class OnnxDeformConv(Windowed):
    """Convolution of bilinear samples taken at tap + offset, each multiplied by its mask; zeros outside the image.

    Shapes:
        input (N, C, H, W), weight (O, C/group, KH, KW), offset (N, OG*KH*KW*2, OH, OW), bias (O,),
        mask (N, OG*KH*KW, OH, OW)  ->  (N, O, OH, OW)
    """

    canonicalises = False

    offset_group: int = 1

    def infer(
        self,
        input: Operand,
        weight: Operand,
        offset: Operand,
        bias: Operand | None = None,
        mask: Operand | None = None,
    ) -> TensorSpec:
        bias, mask = _in_place(bias, mask)
        spec = TensorSpec(padded_shape(input.shape, self._pairs(weight)), input.dtype)
        return self._conv(weight).infer(spec, weight, offset, mask, bias)

    def forward(
        self, input: Array, weight: Array, offset: Array, bias: Array | None = None, mask: Array | None = None
    ) -> Array:
        self.infer(input, weight, offset, bias, mask)
        bias, mask = _in_place(bias, mask)
        return self._conv(weight).forward(extend(input, self._pairs(weight)), weight, offset, mask, bias)

    def flops(self, output: TensorSpec, *operands: object) -> int:
        return self._conv(operands[1]).flops(output, *operands)

    def canonical_for(self, weight: object) -> DeformConv2d | None:
        """Return the convolution with its padding if that is symmetric; else None."""
        pairs = self._pairs(weight)
        if any(before != after for before, after in pairs):
            return None
        return replace(self._conv(weight), padding=tuple(before for before, _ in pairs))

    def _conv(self, weight: object) -> DeformConv2d:
        return DeformConv2d(**self.common(self.rank(weight)))

    def _pairs(self, weight: object) -> Sequence[Pair]:
        return pairs_of(self.pads, self.rank(weight))


def _in_place(bias: Any, mask: Any) -> tuple[Any, Any]:
    """Return bias and mask; a lone fourth operand with four axes is the mask."""
    is_mask = mask is None and bias is not None and len(shape_of(bias)) == 4
    bias, mask = (None, bias) if is_mask else (bias, mask)
    return _vector(bias), mask


def _vector(bias: Any) -> Any:
    """Return a bias as a vector; that of one channel may come as a number."""
    if isinstance(bias, TensorSpec):
        return TensorSpec((1,), bias.dtype) if bias.shape == () else bias
    if isinstance(bias, np.ndarray):
        return bias.reshape(1) if bias.ndim == 0 else bias
    return bias if bias is None else np.full(1, bias, np.float32)
