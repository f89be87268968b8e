"""Normalisation over the last axes: layer norm and root mean square norm."""

from __future__ import annotations

import numpy as np

from engine.errors import ShapeError
from engine.layers.axis import may_equal, may_match
from engine.layers.norm import Norm, mean_square, merged, scaled, standardised
from engine.layers.registry import register
from engine.tensor import Array, Shape, format_shape


@register("nn.LayerNorm", "F.layer_norm", flags={"elementwise_affine": ("weight", "bias")},
          shapes={"weight": ("*normalized_shape",), "bias": ("*normalized_shape",)})  # fmt: skip
class LayerNorm(Norm):
    """(x - mean) / sqrt(var + eps) * weight + bias, with the statistics of the last axes together.

    Shapes:
        input (..., *normalized_shape), weight, bias normalized_shape  ->  as input
    """

    normalized_shape: tuple[int, ...]
    eps: float = 1e-5

    def forward(self, input: Array, weight: Array | None = None, bias: Array | None = None) -> Array:
        return self._run(input, weight, bias)

    def _check(self, input: Shape, *others: Shape | None) -> None:
        _check_trailing(input, self.normalized_shape, *others)

    def _compute(self, x: Array, *others: Array | None) -> Array:
        rows = merged(x, x.ndim - len(self.normalized_shape))
        return scaled(standardised(rows, self.eps), *[None if each is None else each.reshape(-1) for each in others])


@register("nn.RMSNorm", "F.rms_norm", flags={"elementwise_affine": ("weight",)},
          shapes={"weight": ("*normalized_shape",)})  # fmt: skip
class RMSNorm(Norm):
    """x / sqrt(mean(x**2) + eps) * weight, with the mean over the last axes together.

    Shapes:
        input (..., *normalized_shape), weight normalized_shape  ->  as input
    Parameters:
        eps: None stands for the machine epsilon of the dtype computed in.
    """

    normalized_shape: tuple[int, ...]
    eps: float | None = None

    def forward(self, input: Array, weight: Array | None = None) -> Array:
        return self._run(input, weight)

    def _check(self, input: Shape, *others: Shape | None) -> None:
        _check_trailing(input, self.normalized_shape, *others)

    def _compute(self, x: Array, *others: Array | None) -> Array:
        (weight,) = others
        rows = merged(x, x.ndim - len(self.normalized_shape))
        eps = float(np.finfo(x.dtype).eps) if self.eps is None else self.eps
        result = rows / np.sqrt(mean_square(rows) + eps)
        return scaled(result, None if weight is None else weight.reshape(-1))


def _check_trailing(input: Shape, normalized: Shape, *weights: Shape | None) -> None:
    trailing = input[len(input) - len(normalized) :] if 0 < len(normalized) <= len(input) else ()
    if not trailing or not all(map(may_equal, trailing, normalized)):
        expected = f"to end in {format_shape(normalized)}"
        raise ShapeError("input does not end in the normalised shape", found=format_shape(input), expected=expected)
    for shape in weights:
        if shape is not None and not may_match(shape, normalized):
            found = format_shape(shape)
            raise ShapeError("weights do not fit the normalised shape", found=found, expected=format_shape(normalized))
