"""Spread and length over axes: variance, standard deviation and vector norms."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.expression.elementwise import ELEMENTWISE
from engine.layers.definition.layer import Layer
from engine.layers.definition.overload import overload
from engine.layers.definition.registry import register
from engine.layers.reduction.distance import vector_norm
from engine.layers.reduction.reduction import Mean, Reduction
from engine.promotion import Category, dtype_category, real_dtype
from engine.tensor import Array, DType, TensorSpec, dtype_name


class _Spread(Reduction):
    """Base of layers that measure the distance from the mean.

    ``unbiased`` may be the correction itself, a number, as the converter writes it; True is 1.
    """

    unbiased: bool | int | float | None = True
    correction: int | float | None = None

    def _natural_dtype(self, dtype: DType) -> DType:
        if dtype_category(dtype) in (Category.BOOL, Category.INTEGER):
            raise ShapeError("integers have no deviation", found=dtype_name(dtype), expected="a floating dtype")
        return real_dtype(dtype)

    def _working_dtype(self, dtype: DType) -> DType:
        self._natural_dtype(dtype)
        return dtype if dtype.kind == "c" else super()._working_dtype(dtype)

    def _variance(self, input: Array, axes: tuple[int, ...]) -> Array:
        """Return the mean squared distance, with the correction subtracted from the count; NaN or inf if too few."""
        count = math.prod(input.shape[axis] for axis in axes)
        away = np.abs(input - input.sum(axes, keepdims=True) / np.asarray(count, input.dtype))
        given = self.unbiased if self.correction is None else self.correction
        divisor = max(count - (1 if given is None else float(given)), 0.0)
        return np.asarray((away * away).sum(axes) / away.dtype.type(divisor))


@register("torch.var")
class Variance(_Spread):
    """sum((x - mean) ** 2) / (N - correction) over dim."""

    def _reduce(self, input: Array, axes: tuple[int, ...]) -> Any:
        return self._variance(input, axes)


@register("torch.std")
class Deviation(_Spread):
    """The square root of the variance over dim."""

    def _reduce(self, input: Array, axes: tuple[int, ...]) -> Any:
        return np.sqrt(self._variance(input, axes))


overload("aten::var", (Variance, "input unbiased"), (Variance, "input dim unbiased keepdim"))
overload("aten::std", (Deviation, "input unbiased"), (Deviation, "input dim unbiased keepdim"))


class _WithMean(Layer):
    """Base of layers that give a spread together with the mean."""

    spread: ClassVar[type[_Spread]]

    dim: tuple[int, ...] | None = None
    unbiased: bool | int | float | None = True
    keepdim: bool = False

    def infer(self, input: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
        spread, mean = self._layers()
        return spread.infer(input), mean.infer(input)

    def forward(self, input: Array) -> tuple[Array, Array]:
        spread, mean = self._layers()
        return spread.forward(input), mean.forward(input)

    def _layers(self) -> tuple[_Spread, Mean]:
        spread = self.spread(dim=self.dim, keepdim=self.keepdim, unbiased=self.unbiased)
        return spread, Mean(dim=self.dim, keepdim=self.keepdim)


class VarianceMean(_WithMean):
    """The variance and the mean over dim."""

    spread = Variance


class DeviationMean(_WithMean):
    """The standard deviation and the mean over dim."""

    spread = Deviation


overload("aten::var_mean", (VarianceMean, "input unbiased"), (VarianceMean, "input dim unbiased keepdim"))
overload("aten::std_mean", (DeviationMean, "input unbiased"), (DeviationMean, "input dim unbiased keepdim"))


@register("torch.norm")
class Norm(Reduction):
    """sum(|x| ** p) ** (1 / p) over dim; inf is the largest |x|, -inf the smallest, 0 counts nonzero elements."""

    p: int | float | str | None = 2

    def __post_init__(self) -> None:
        if isinstance(self.p, str) and self.p != "fro":
            raise ParameterError("unknown norm", found=self.p, expected="a number or fro")

    def _natural_dtype(self, dtype: DType) -> DType:
        if dtype_category(dtype) in (Category.BOOL, Category.INTEGER):
            raise ShapeError("integers have no norm", found=dtype_name(dtype), expected="a floating or complex dtype")
        return real_dtype(dtype)

    def _working_dtype(self, dtype: DType) -> DType:
        return dtype if dtype.kind == "c" else super()._working_dtype(dtype)

    def _reduce(self, input: Array, axes: Any) -> Any:
        return vector_norm(input, 2.0 if self.p is None or self.p == "fro" else float(self.p), axes)


@register("aten::norm_except_dim", positional=("input", "pow", "dim"))
class NormExceptDim(Layer):
    """The norm of every slice along dim, whose axes are kept as ones; of everything if dim is -1."""

    pow: int = 2
    dim: int = 0

    def infer(self, input: TensorSpec) -> TensorSpec:
        return self._norm(input.rank).infer(input)

    def forward(self, input: Array) -> Array:
        return self._norm(input.ndim).forward(input)

    def _norm(self, rank: int) -> Norm:
        if not -1 <= self.dim < rank:
            raise ShapeError("dim is out of range", found=self.dim, expected=f"-1 to {rank - 1}")
        others = tuple(axis for axis in range(rank) if axis != self.dim)
        return Norm(p=self.pow) if self.dim == -1 else Norm(p=self.pow, dim=others, keepdim=True)


@register("aten::dist", positional=("input", "other", "p"))
class Distance(Layer):
    """The p-norm of input - other, broadcast and flattened."""

    p: int | float = 2

    def infer(self, input: TensorSpec, other: TensorSpec) -> TensorSpec:
        return Norm(p=self.p).infer(ELEMENTWISE["sub"].infer(input, other))  # type: ignore[arg-type]

    def forward(self, input: Array, other: Array) -> Array:
        with np.errstate(all="ignore"):
            difference = ELEMENTWISE["sub"].evaluate(input, other)
        return Norm(p=self.p).forward(difference)  # type: ignore[arg-type]
