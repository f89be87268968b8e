"""Lengths of vectors and distances between all rows.

A norm's order ``p`` may be any number, infinity included: 0 counts nonzero elements, inf is the largest absolute value,
-inf the smallest. PyTorch computes them in the operands' dtype; half precision in float32.
"""

from __future__ import annotations

import math

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.operands.axes import may_equal
from engine.layers.operands.precision import widened
from engine.promotion import broadcast_shapes, cast, float_dtype, result_type
from engine.tensor import Array, DType, TensorSpec, format_shape


def vector_norm(x: Array, p: float, axis: int, *, keepdims: bool = False) -> Array:
    """Compute (sum |x|**p)**(1/p) along an axis of a floating or complex array; the result is real."""
    if p == 2:
        parts = (x.real, x.imag) if x.dtype.kind == "c" else (x,)
        return np.asarray(np.sqrt(sum(np.square(part).sum(axis=axis, keepdims=keepdims) for part in parts)))
    magnitudes = np.abs(x)
    if p == math.inf:
        return np.asarray(magnitudes.max(axis=axis, keepdims=keepdims, initial=0))
    if p == -math.inf:
        return np.asarray(magnitudes.min(axis=axis, keepdims=keepdims, initial=np.inf))
    if p == 0:
        return np.asarray((magnitudes != 0).sum(axis=axis, keepdims=keepdims, dtype=magnitudes.dtype))
    if p == 1:
        return np.asarray(magnitudes.sum(axis=axis, keepdims=keepdims))
    return np.asarray(np.power(magnitudes, p).sum(axis=axis, keepdims=keepdims) ** (1 / p))


@register("aten::cdist", positional=("x1", "x2", "p", "compute_mode"))
class Cdist(Layer):
    """Distances of order p between every row of x1 and every row of x2.

    Shapes:
        x1 (..., P, M), x2 (..., R, M)  ->  (..., P, R)
    Parameters:
        compute_mode: when to use |a|**2 + |b|**2 - 2 a.b for p = 2: 0 above 25 rows, 1 always, 2 never.
    """

    p: float = 2.0
    compute_mode: int | None = None

    def __post_init__(self) -> None:
        if not self.p >= 0:
            raise ParameterError("p must not be negative", found=self.p)

    def infer(self, x1: TensorSpec, x2: TensorSpec) -> TensorSpec:
        if x1.rank < 2 or x2.rank < 2 or not may_equal(x1.shape[-1], x2.shape[-1]):
            found = f"{format_shape(x1.shape)} and {format_shape(x2.shape)}"
            raise ShapeError("rows cannot be compared", found=found, expected="rank 2 or more and equal row lengths")
        lead = broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
        return TensorSpec((*lead, x1.shape[-2], x2.shape[-2]), self._dtype(x1.dtype, x2.dtype))

    def forward(self, x1: Array, x2: Array) -> Array:
        spec = self.infer(TensorSpec(x1.shape, x1.dtype), TensorSpec(x2.shape, x2.dtype))
        a, b = widened(x1), widened(x2)
        with np.errstate(all="ignore"):
            return cast(self._euclidean(a, b) if self._by_matmul(a, b) else self._direct(a, b), spec.dtype)

    def _by_matmul(self, a: Array, b: Array) -> bool:
        many = a.shape[-2] > 25 or b.shape[-2] > 25
        return self.p == 2 and (self.compute_mode == 1 or (many and self.compute_mode != 2))

    def _euclidean(self, a: Array, b: Array) -> Array:
        squares_a, squares_b = np.square(a).sum(-1)[..., :, None], np.square(b).sum(-1)[..., None, :]
        squares = np.maximum(squares_a + squares_b - 2 * (a @ b.swapaxes(-1, -2)), 0)
        return np.asarray(np.sqrt(squares))

    def _direct(self, a: Array, b: Array) -> Array:
        return vector_norm(a[..., :, None, :] - b[..., None, :, :], self.p, -1)

    def _dtype(self, a: DType, b: DType) -> DType:
        return float_dtype(result_type(TensorSpec((1,), a), TensorSpec((1,), b)))


@register("aten::pdist", positional=("input", "p"))
class Pdist(Layer):
    """Distances of order p between every two rows: (0, 1), (0, 2), ..., (1, 2), ...

    Shapes:
        input (N, M)  ->  (N * (N - 1) / 2,)
    """

    p: float = 2.0

    def infer(self, input: TensorSpec) -> TensorSpec:
        if input.rank != 2:
            raise ShapeError("rank does not fit", found=format_shape(input.shape), expected="[N, M]")
        rows = input.shape[0]
        pairs = None if rows is None else rows * (rows - 1) // 2
        return TensorSpec((pairs,), float_dtype(input.dtype))

    def forward(self, input: Array) -> Array:
        spec = self.infer(TensorSpec(input.shape, input.dtype))
        x = widened(input)
        first, second = np.triu_indices(len(x), k=1)
        with np.errstate(all="ignore"):
            return cast(vector_norm(x[first] - x[second], self.p, -1), spec.dtype)
