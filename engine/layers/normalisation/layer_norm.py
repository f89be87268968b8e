"""Normalisation over the last axes: layer norm and root mean square norm."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from engine.errors import ShapeError
from engine.layers.definition.layer import NO_ANNOTATIONS, Annotations, Layer
from engine.layers.definition.registry import register
from engine.layers.normalisation.norm import Norm, affine, standardised
from engine.layers.operands.axes import may_equal
from engine.layers.operands.fitting import check_shape
from engine.layers.operands.precision import widened
from engine.promotion import cast, float_dtype
from engine.tensor import Array, DType, Shape, TensorSpec, format_shape, spec_of

_FLOAT32: DType = np.dtype(np.float32)


class LayerNormStatistics(Layer):
    """Layer norm with its statistics: the result, the mean and 1 / sqrt(var + eps).

    Shapes:
        input (..., *normalized_shape)  ->  as input; both statistics (..., 1, ...)
    """

    normalized_shape: tuple[int, ...]
    eps: float = 1e-5

    def infer(self, input: TensorSpec, weight: TensorSpec | None = None, bias: TensorSpec | None = None) -> Any:
        others = (None if each is None else each.shape for each in (weight, bias))
        _check_trailing(input.shape, self.normalized_shape, *others)
        lead = input.shape[: input.rank - len(self.normalized_shape)]
        dtype = input.dtype if input.dtype == np.float64 else _FLOAT32
        statistics = TensorSpec((*lead, *(1,) * len(self.normalized_shape)), dtype)
        return TensorSpec(input.shape, float_dtype(input.dtype)), statistics, statistics

    def forward(self, input: Array, weight: Array | None = None, bias: Array | None = None) -> Any:
        result, statistics, _ = self.infer(*(spec_of(each) for each in (input, weight, bias)))  # type: ignore[arg-type]
        x, axes = widened(input), _last_axes(input, self.normalized_shape)
        with np.errstate(all="ignore"):
            mean = x.mean(axes, keepdims=True)
            inverse = 1 / np.sqrt(np.square(x - mean).mean(axes, keepdims=True) + x.dtype.type(self.eps))
            y = affine(
                (x - mean) * inverse, *[None if each is None else cast(each, x.dtype) for each in (weight, bias)]
            )
        return cast(y, result.dtype), cast(mean, statistics.dtype), cast(inverse, statistics.dtype)


class _TrailingNorm(Norm):
    """Base of layers that normalise the last axes."""

    normalized_shape: tuple[int, ...]

    def _check(self, input: Shape, *others: Shape | None) -> None:
        _check_trailing(input, self.normalized_shape, *others)


@register(
    "F.layer_norm",
    flags={"elementwise_affine": ("weight", "bias")},
    shapes={"weight": ("*normalized_shape",), "bias": ("*normalized_shape",)},
)
class LayerNorm(_TrailingNorm):
    """(x - mean) / sqrt(var + eps) * weight + bias, with the statistics of the last axes together.

    Shapes:
        input (..., *normalized_shape), weight, bias normalized_shape  ->  as input
    """

    canonical_layers = (LayerNormStatistics,)

    eps: float = 1e-5
    annotations: Annotations = NO_ANNOTATIONS

    def canonicalise(self) -> Layer:
        if len(self.annotations.outputs) != 3:
            return replace(self, annotations=NO_ANNOTATIONS)
        return LayerNormStatistics(normalized_shape=self.normalized_shape, eps=self.eps)

    def forward(self, input: Array, weight: Array | None = None, bias: Array | None = None) -> Array:
        return self._run(input, weight, bias)

    def _compute(self, x: Array, *others: Array | None) -> Array:
        return affine(standardised(x, _last_axes(x, self.normalized_shape), self.eps), *others)


@register("F.rms_norm", flags={"elementwise_affine": ("weight",)}, shapes={"weight": ("*normalized_shape",)})
class RMSNorm(_TrailingNorm):
    """x / sqrt(mean(x**2) + eps) * weight, with the mean over the last axes together.

    Shapes:
        input (..., *normalized_shape), weight normalized_shape  ->  as input
    Parameters:
        eps: None for the machine epsilon of the dtype computed in.
    """

    eps: float | None = None

    def forward(self, input: Array, weight: Array | None = None) -> Array:
        return self._run(input, weight)

    def _compute(self, x: Array, *others: Array | None) -> Array:
        eps = float(np.finfo(x.dtype).eps) if self.eps is None else self.eps
        mean_square = np.square(x).mean(_last_axes(x, self.normalized_shape), keepdims=True)
        return affine(x / np.sqrt(mean_square + eps), *others)


def _last_axes(x: Array, normalized: Shape) -> tuple[int, ...]:
    return tuple(range(x.ndim - len(normalized), x.ndim))


def _check_trailing(input: Shape, normalized: Shape, *weights: Shape | None) -> None:
    trailing = input[len(input) - len(normalized) :] if 0 < len(normalized) <= len(input) else ()
    if not trailing or not all(map(may_equal, trailing, normalized)):
        expected = f"to end in {format_shape(normalized)}"
        raise ShapeError("input does not end in the normalised shape", found=format_shape(input), expected=expected)
    for shape in weights:
        if shape is not None:
            check_shape(shape, normalized, "weights do not fit the normalised shape")
