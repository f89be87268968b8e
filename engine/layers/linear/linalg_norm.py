"""Norms of vectors and matrices as defined by torch.linalg."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.definition.composite import CallLayer, Composite
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.operands.axes import checked_axes
from engine.layers.operands.precision import working_dtype
from engine.layers.reduction.deviation import Norm
from engine.layers.reduction.extremum import Extreme
from engine.promotion import cast
from engine.tensor import Array, DType, Shape, TensorSpec, format_shape

_MATRIX_ORDERS: Final = ("nuc", 1, -1, 2, -2, math.inf, -math.inf)


@register("aten::linalg_norm", positional=("input", "ord", "dim", "keepdim", "dtype"))
class LinalgNorm(Composite):
    """The norm of vectors along one dim, or of the matrices of two dims; without dim of all elements.

    Parameters:
        ord: of vectors any number, 2 unless given; of matrices fro (unless given), nuc (the sum of the singular
            values), 2 or -2 (the largest or smallest one), 1 or -1 (the largest or smallest column sum of absolute
            values), inf or -inf (of row sums).
    """

    ord: int | float | str | None = None
    dim: tuple[int, ...] | None = None
    keepdim: bool = False
    dtype: DType | None = None

    def compose(self, call: CallLayer, input: Array) -> Any:
        rank = len(input.shape)
        self._check(rank)
        self._check_elements(input.shape)
        if not self._is_of_matrices(rank):
            order = 2 if self.ord is None or self.ord == "fro" else self.ord
            return call(Norm(p=order, dim=self.dim, keepdim=self.keepdim, dtype=self.dtype), input)
        axes = checked_axes(self.dim or (0, 1), rank)
        if isinstance(self.ord, str) or self.ord is None or abs(self.ord) == 2:
            return call(SingularNorm(ord=self.ord, dim=axes, keepdim=self.keepdim, dtype=self.dtype), input)
        summed = axes[0] if abs(self.ord) == 1 else axes[1]
        sums = call(Norm(p=1, dim=(summed,), keepdim=True, dtype=self.dtype), input)
        return call(Extreme(is_largest=self.ord > 0, dim=axes, keepdim=self.keepdim), sums)

    def _is_of_matrices(self, rank: int) -> bool:
        """Return whether singular values or sums of rows are needed; the Frobenius norm is that of a vector."""
        return len(self.dim or range(rank)) == 2 and self.ord not in (None, "fro")

    def _check_elements(self, shape: Shape) -> None:
        """Refuse to choose the largest or smallest column, row or singular value if there is none."""
        if not self._is_of_matrices(len(shape)) or self.ord == "nuc":
            return
        rows, columns = (shape[axis] for axis in checked_axes(self.dim or (0, 1), len(shape)))
        counted: dict[object, Shape] = {1: (columns,), -1: (columns,), 2: (rows, columns), -2: (rows, columns)}
        if 0 in counted.get(self.ord, (rows,)):
            raise ShapeError("there are no elements to choose from", found=format_shape(shape))

    def _check(self, rank: int) -> None:
        count = len(self.dim) if self.dim else rank
        if self.ord is not None and (count > 2 or (self.dim is None and rank == 0)):
            raise ShapeError("a norm of that order takes one or two dims", found=f"{count} dims")
        if isinstance(self.ord, str) and (self.ord not in ("fro", "nuc") or count != 2):
            raise ParameterError("unknown norm", found=f"{self.ord} of {count} dims", expected="fro or nuc of two dims")
        if self._is_of_matrices(rank) and self.ord not in _MATRIX_ORDERS:
            raise ParameterError(
                "unknown matrix norm", found=self.ord, expected="fro, nuc, 1, 2 or inf, or a negative one"
            )


@register("engine.SingularNorm")
class SingularNorm(Layer):
    """The sum of the singular values of matrices (nuc), the largest (2) or the smallest one (-2)."""

    ord: int | float | str | None
    dim: tuple[int, ...]
    keepdim: bool = False
    dtype: DType | None = None

    def infer(self, input: TensorSpec) -> TensorSpec:
        return Norm(dim=self.dim, keepdim=self.keepdim, dtype=self.dtype).infer(input)

    def forward(self, input: Array) -> Array:
        spec = self.infer(TensorSpec(input.shape, input.dtype))
        matrices = np.moveaxis(cast(input, working_dtype(self.dtype or input.dtype)), self.dim, (-2, -1))
        with np.errstate(all="ignore"):
            result = np.linalg.norm(matrices, self.ord, (-2, -1))  # type: ignore[arg-type]
        return cast(np.asarray(result), spec.dtype).reshape(spec.sizes)
