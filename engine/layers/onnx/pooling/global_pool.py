"""Pooling over all spatial axes."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from engine.errors import ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.onnx.operands.adapter import UnaryAdapter, check_fits
from engine.layers.operands.precision import working_dtype
from engine.layers.operands.spatial import FLOATING, Operand, tensor
from engine.layers.pooling.adaptive_pool import AdaptiveAvgPool, AdaptiveMaxPool
from engine.layers.reduction.extremum import AMax
from engine.layers.reduction.reduction import Mean, Reduction
from engine.promotion import cast
from engine.tensor import Array, TensorSpec, format_shape


class _Global(UnaryAdapter):
    """Base of pooling over all spatial axes."""

    adaptive: ClassVar[type[AdaptiveAvgPool | AdaptiveMaxPool]]
    reduction: ClassVar[type[Reduction]]

    def canonical(self, input: Operand) -> Layer:
        rank = tensor(input, "input", FLOATING).rank - 2
        if rank < 1:
            raise ShapeError("input has no spatial axes", found=format_shape(input.shape), expected="3 axes or more")
        if rank <= 3:
            return self.adaptive(spatial_rank=rank, output_size=(1,))
        return self.reduction(dim=tuple(range(2, rank + 2)), keepdim=True)


@register("GlobalAveragePool")
class GlobalAveragePool(_Global):
    """Mean of each channel.

    Shapes:
        input (N, C, *S)  ->  (N, C, 1, ...)
    """

    canonical_layers = (AdaptiveAvgPool,)

    adaptive = AdaptiveAvgPool
    reduction = Mean


@register("GlobalMaxPool")
class GlobalMaxPool(_Global):
    """Largest element of each channel.

    Shapes:
        input (N, C, *S)  ->  (N, C, 1, ...)
    """

    canonical_layers = (AdaptiveMaxPool,)
    adaptive = AdaptiveMaxPool
    reduction = AMax


@register("GlobalLpPool")
class GlobalLpPool(Layer):
    """sum(abs(x)^p)^(1/p) of each channel.

    Shapes:
        input (N, C, *S)  ->  (N, C, 1, ...)
    """

    p: float = 2

    def infer(self, input: Operand) -> TensorSpec:
        spec = tensor(input, "input", FLOATING)
        check_fits(spec.rank > 2, "input", spec.shape, "3 axes or more")
        return TensorSpec((*spec.shape[:2], *(1,) * (spec.rank - 2)), spec.dtype)

    def forward(self, input: Array) -> Array:
        self.infer(input)
        x = cast(input, working_dtype(input.dtype))
        with np.errstate(all="ignore"):
            total = (np.abs(x) ** x.dtype.type(self.p)).sum(tuple(range(2, x.ndim)), keepdims=True)
            return cast(np.power(total, x.dtype.type(1 / self.p)), input.dtype)
