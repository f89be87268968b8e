"""Reference convolutions, summed tap by tap in float64."""

from __future__ import annotations

import numpy as np

from engine.tensor import Array


def convolved(
    image: Array,
    weight: Array,
    bias: Array,
    stride: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
) -> Array:
    """Return the convolution of a padded image (N, H, W, C) with weights (O, C/groups, KH, KW)."""
    filters = weight.reshape(groups, len(weight) // groups, *weight.shape[1:]).astype(np.float64)
    pixels = image.reshape(*image.shape[:3], groups, -1).astype(np.float64)
    total: Array = np.zeros(1)
    for ky, kx in np.ndindex(*weight.shape[2:]):
        first = ky * dilation[0], kx * dilation[1]
        behind = [(k - 1) * gap - at for k, gap, at in zip(weight.shape[2:], dilation, first, strict=True)]
        rows, columns = (
            slice(at, size - rest, step)
            for at, size, rest, step in zip(first, image.shape[1:3], behind, stride, strict=True)
        )
        total = total + np.einsum("nhwgi,goi->nhwgo", pixels[:, rows, columns], filters[..., ky, kx], optimize=True)
    return total.reshape(*total.shape[:3], -1) + bias
