"""Functions of square matrices: powers, the exponential and determinants."""

from __future__ import annotations

from math import frexp

import numpy as np

from engine.cancellation import cancellable
from engine.errors import ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.operands.axes import may_equal
from engine.layers.operands.precision import working_dtype
from engine.promotion import Category, cast, dtype_category
from engine.tensor import Array, Shape, TensorSpec, dtype_name, format_shape

# Terms of the series of e**x; for x below 1/2 the rest is less than the precision of a double.
_TERMS = 16


def check_square(shape: Shape) -> None:
    """Refuse a shape that is not a stack of square matrices.

    Raises:
        ShapeError: it is not.
    """
    if len(shape) < 2 or not may_equal(*shape[-2:]):
        raise ShapeError("not square matrices", found=format_shape(shape), expected="[..., M, M]")


class _OfMatrices(Layer):
    """Base of functions of square matrices (..., M, M)."""

    def infer(self, input: TensorSpec) -> TensorSpec:
        check_square(input.shape)
        return TensorSpec(input.shape, input.dtype)

    def forward(self, input: Array) -> Array:
        with np.errstate(all="ignore"):
            return cast(np.asarray(self._computed(cast(input, working_dtype(input.dtype)))), input.dtype)

    def _computed(self, matrices: Array) -> Array:
        raise NotImplementedError


@register("aten::linalg_matrix_power", positional=("input", "n"))
class MatrixPower(_OfMatrices):
    """Every matrix to the n-th power; the unit matrix for 0, powers of the inverse for negative n."""

    n: int

    def _computed(self, matrices: Array) -> Array:
        if not matrices.size:
            return matrices
        try:
            return np.asarray(np.linalg.matrix_power(matrices, self.n))
        except np.linalg.LinAlgError:
            raise ShapeError("a matrix without an inverse has no negative power", found=f"n = {self.n}") from None


@register("aten::linalg_det")
class Determinant(_OfMatrices):
    """Determinants of square matrices: input (..., M, M) -> (...)."""

    def infer(self, input: TensorSpec) -> TensorSpec:
        return TensorSpec(super().infer(input).shape[:-2], input.dtype)

    def _computed(self, matrices: Array) -> Array:
        return np.asarray(np.linalg.det(matrices))


@register("aten::linalg_matrix_exp")
class MatrixExponential(_OfMatrices):
    """e**x = 1 + x + x**2 / 2 + ..., of x halved until the series converges fast, squared as often as it was halved.

    Source: Moler and Van Loan, Nineteen Dubious Ways to Compute the Exponential of a Matrix (2003), method 3.
    """

    def infer(self, input: TensorSpec) -> TensorSpec:
        if dtype_category(input.dtype) in (Category.BOOL, Category.INTEGER):
            raise ShapeError("not defined for this dtype", found=dtype_name(input.dtype), expected="a floating dtype")
        return super().infer(input)

    def _computed(self, matrices: Array) -> Array:
        wide = matrices.astype(np.result_type(matrices.dtype, np.float64))
        norms = np.abs(wide).sum(-2).max(initial=0, where=np.isfinite(np.abs(wide).sum(-2)))
        halvings = max(0, frexp(norms)[1] + 1)
        x, unit = np.ldexp(1.0, -halvings) * wide, np.eye(wide.shape[-1], dtype=wide.dtype)
        result = np.broadcast_to(unit, wide.shape)
        for count in range(_TERMS, 0, -1):
            result = unit + x @ result / count
        for _ in cancellable(range(halvings)):
            result = result @ result
        return np.asarray(result)
