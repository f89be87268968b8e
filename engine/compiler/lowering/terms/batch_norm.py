"""The rule of batch normalisation with running statistics: a multiplication and an addition for every channel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.compiler.kernels.expr import Expr, apply
from engine.compiler.lowering.terms.registry import Argument, expression_for, per_channel, prepares
from engine.layers.normalisation.norm import BatchNorm
from engine.tensor import Array


@prepares(BatchNorm)
def batch_norm_arguments(
    layer: BatchNorm, x: Argument, mean: Argument, var: Argument, weight: Argument, bias: Argument
) -> Sequence[Argument] | None:
    """The input, scale and shift; None where a statistic is not known now."""
    given = [each for each in (mean, var, weight, bias) if each.value is not None]
    if mean.array is None or var.array is None or any(each.array is None for each in given):
        return None
    # Folded in float64: the shift is a difference of what may be large.
    scale = _wide(weight.array, 1.0) / np.sqrt(_wide(var.array, 1.0) + layer.eps)
    shift = _wide(bias.array, 0.0) - _wide(mean.array, 0.0) * scale
    parts = [per_channel(Argument(each.astype(x.dtype)), len(x.shape)) for each in (scale, shift)]
    return None if parts[0] is None or parts[1] is None else (x, parts[0], parts[1])


@expression_for(BatchNorm)
def batch_norm(layer: BatchNorm, x: Expr, scale: Expr, shift: Expr) -> Expr:
    """x * scale + shift"""
    return apply("fma", x, scale, shift)


def _wide(array: Array | None, default: float) -> Array:
    return np.full(1, default) if array is None else array.astype(np.float64)
