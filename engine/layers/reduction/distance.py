"""Lengths of vectors and distances between them.

A norm's order ``p`` may be any number, infinity included: 0 counts nonzero elements, inf is the largest absolute value,
-inf the smallest. PyTorch computes them in the operands' dtype; half precision in float32.
"""

from __future__ import annotations

import math

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.operands.axes import checked_axis, may_equal
from engine.layers.operands.precision import widened
from engine.promotion import broadcast_shapes, cast, float_dtype, real_dtype, result_type
from engine.tensor import Array, DType, Shape, TensorSpec, format_shape


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


@register("F.normalize")
class Normalize(Layer):
    """x / max(norm(x), eps) with the norm of order p along dim."""

    p: float = 2.0
    dim: int = 1
    eps: float = 1e-12

    def infer(self, input: TensorSpec) -> TensorSpec:
        checked_axis(self.dim, input.rank)
        return TensorSpec(input.shape, float_dtype(input.dtype))

    def forward(self, input: Array) -> Array:
        axis = checked_axis(self.dim, input.ndim)
        x = np.atleast_1d(widened(input))
        with np.errstate(all="ignore"):
            result = x / np.maximum(vector_norm(x, self.p, axis, keepdims=True), self.eps)
        return cast(result.reshape(input.shape), float_dtype(input.dtype))


@register("F.pairwise_distance")
class PairwiseDistance(Layer):
    """norm(x1 - x2 + eps) of order p along the last axis, row by row.

    Shapes:
        x1 (..., M), x2 (..., M), broadcast against each other  ->  (...) or (..., 1) with keepdim
    """

    p: float = 2.0
    eps: float = 1e-6
    keepdim: bool = False

    def infer(self, x1: TensorSpec, x2: TensorSpec) -> TensorSpec:
        shape = broadcast_shapes(x1.shape, x2.shape)
        if not shape:
            raise ShapeError("a distance needs vectors", found="0-dim tensors")
        kept: Shape = (1,) if self.keepdim else ()
        return TensorSpec((*shape[:-1], *kept), real_dtype(float_dtype(result_type(x1, x2))))

    def forward(self, x1: Array, x2: Array) -> Array:
        dtype = self.infer(TensorSpec(x1.shape, x1.dtype), TensorSpec(x2.shape, x2.dtype)).dtype
        with np.errstate(all="ignore"):
            difference = widened(x1) - widened(x2) + self.eps
            return cast(vector_norm(difference, self.p, -1, keepdims=self.keepdim), dtype)


@register("aten::cosine_similarity", positional=("x1", "x2", "dim", "eps"))
class CosineSimilarity(Layer):
    """Sum along dim of x1 / max(norm(x1), eps) times x2 / max(norm(x2), eps).

    Shapes:
        x1, x2 broadcast against each other  ->  that shape without dim
    """

    dim: int = 1
    eps: float = 1e-8

    def infer(self, x1: TensorSpec, x2: TensorSpec) -> TensorSpec:
        shape = broadcast_shapes(x1.shape, x2.shape)
        axis = checked_axis(self.dim, len(shape))
        return TensorSpec(shape[:axis] + shape[axis + 1 :], float_dtype(result_type(x1, x2)))

    def forward(self, x1: Array, x2: Array) -> Array:
        spec = self.infer(TensorSpec(x1.shape, x1.dtype), TensorSpec(x2.shape, x2.dtype))
        a, b = np.broadcast_arrays(np.atleast_1d(widened(x1)), np.atleast_1d(widened(x2)))
        axis = checked_axis(self.dim, a.ndim)
        with np.errstate(all="ignore"):
            product = (self._direction(a, axis) * self._direction(b, axis)).sum(axis=axis)
        return cast(product, spec.dtype)

    def _direction(self, x: Array, axis: int) -> Array:
        return x / np.maximum(vector_norm(x, 2, axis, keepdims=True), self.eps)


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
