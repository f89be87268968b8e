"""Systems of linear equations whose matrix is a triangle."""

from __future__ import annotations

import numpy as np

from engine.cancellation import cancellable
from engine.errors import ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.linear.square import check_square
from engine.layers.operands.axes import may_equal
from engine.layers.operands.precision import working_dtype
from engine.promotion import Category, broadcast_shapes, cast, dtype_category
from engine.tensor import Array, Shape, TensorSpec, dtype_name, format_shape


@register("aten::linalg_solve_triangular", positional=("input", "other", "upper", "left", "unitriangular"))
class SolveTriangular(Layer):
    """X with A X = B, or X A = B where ``left`` is False, row after row of X by substitution.

    Shapes:
        A (..., N, N), B (..., N, K) or, with ``left`` False, (..., K, N)  ->  as B; the leading dimensions broadcast
    Dtypes:
        floating or complex, both the same.
    Parameters:
        upper: which triangle of A is read; the other one is ignored.
        unitriangular: the diagonal is ignored too, and is all ones.
    Source:
        torch.linalg.solve_triangular. A zero on the diagonal gives infinities and NaN.
    """

    upper: bool
    left: bool = True
    unitriangular: bool = False

    def infer(self, input: TensorSpec, other: TensorSpec) -> TensorSpec:
        if input.dtype != other.dtype or dtype_category(input.dtype) in (Category.BOOL, Category.INTEGER):
            found = f"{dtype_name(input.dtype)} and {dtype_name(other.dtype)}"
            raise ShapeError("not defined for these dtypes", found=found, expected="equal floating or complex ones")
        return TensorSpec(self._shape(input.shape, other.shape), input.dtype)

    def forward(self, input: Array, other: Array) -> Array:
        shape = self.infer(TensorSpec(input.shape, input.dtype), TensorSpec(other.shape, other.dtype)).shape
        working = working_dtype(input.dtype)
        a, b = cast(input, working), np.broadcast_to(cast(other, working), [size or 0 for size in shape])
        with np.errstate(all="ignore"):
            if self.left:
                x = self._substituted(a, b, self.upper)
            else:
                x = self._substituted(a.swapaxes(-2, -1), b.swapaxes(-2, -1), not self.upper).swapaxes(-2, -1)
        return cast(np.ascontiguousarray(x), input.dtype)

    def _substituted(self, a: Array, b: Array, upper: bool) -> Array:
        """Return X with A X = B by substitution, from the last row for an upper triangle, else from the first."""
        x, rows = np.array(b), range(a.shape[-1])
        for i in cancellable(rows[::-1] if upper else rows):
            known = slice(i + 1, None) if upper else slice(i)
            x[..., i, :] -= (a[..., i : i + 1, known] @ x[..., known, :])[..., 0, :]
            if not self.unitriangular:
                x[..., i, :] /= a[..., i, i, None]
        return x

    def _shape(self, a: Shape, b: Shape) -> Shape:
        check_square(a)
        if len(b) < 2 or not may_equal(a[-1], b[-2 if self.left else -1]):
            expected = "[..., N, N] and " + ("[..., N, K]" if self.left else "[..., K, N]")
            raise ShapeError("systems do not fit", found=f"{format_shape(a)} and {format_shape(b)}", expected=expected)
        return (*broadcast_shapes(a[:-2], b[:-2]), *b[-2:])
