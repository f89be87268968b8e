"""Embedding bags, which exporters write as a loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from engine.cancellation import cancellable
from engine.errors import ParameterError, ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.indexing.selection import counted
from engine.layers.operands.fitting import check_shape
from engine.limits import check_size
from engine.promotion import cast
from engine.tensor import Array, TensorSpec, format_shape, specs_of

_POOLS: Final[dict[str, Callable[..., Array]]] = {"sum": np.sum, "mean": np.mean, "max": np.max}


@register("onnx.EmbeddingBags")
class EmbeddingBags(Layer):
    """Sum, mean or maximum of the table rows ``indices[bounds[k] : bounds[k + 1]]``, for each k.

    The bags of the core follow each other; these may overlap, and bounds may be negative.

    Bounds are those of ``Slice``: clamped to the length, negative ones count from the end. An empty bag is zeros, for
    means as in onnxruntime.

    Parameters:
        mode: ``sum``, ``mean`` or ``max``.

    Shapes:
        weight (R, C), indices (I), bounds (B + 1), per_sample_weights (I)  ->  (B, C)
    """

    loops = True

    mode: str = "sum"

    def __post_init__(self) -> None:
        if self.mode not in _POOLS:
            raise ParameterError("unknown mode", found=self.mode, expected="sum, mean or max")

    def infer(self, weight: TensorSpec, indices: TensorSpec, bounds: TensorSpec, per_sample_weights: Any = None) -> Any:
        if (weight.rank, indices.rank, bounds.rank) != (2, 1, 1):
            found = ", ".join(format_shape(each.shape) for each in (weight, indices, bounds))
            raise ShapeError("a table and two vectors are needed", found=found)
        if indices.dtype.kind not in "iu" or bounds.dtype.kind not in "iu":
            raise ShapeError("indices and bounds must be integers", found=f"{indices.dtype} and {bounds.dtype}")
        if per_sample_weights is not None:
            check_shape(per_sample_weights.shape, indices.shape, "per_sample_weights do not fit")
        bags = None if bounds.shape[0] is None else max(bounds.shape[0] - 1, 0)
        return TensorSpec((bags, weight.shape[1]), weight.dtype)

    def forward(self, weight: Array, indices: Array, bounds: Array, per_sample_weights: Array | None = None) -> Array:
        operands = (weight, indices, bounds, *([] if per_sample_weights is None else [per_sample_weights]))
        shape = self.infer(*specs_of(operands)).shape
        check_size(shape, weight.dtype)
        found = np.zeros(shape, weight.dtype)
        for k in cancellable(range(shape[0])):
            bag = slice(int(bounds[k]), int(bounds[k + 1]))
            check_size((len(indices[bag]), shape[1]), weight.dtype, "a bag")
            rows = weight.take(counted(indices[bag], len(weight)), 0)
            if per_sample_weights is not None:
                rows = rows * per_sample_weights[bag][:, None]
            if len(rows):
                found[k] = cast(_POOLS[self.mode](rows, axis=0), weight.dtype)
        return found
