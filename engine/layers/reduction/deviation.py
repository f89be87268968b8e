"""Spread and length over axes: variance, standard deviation and vector norms."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.creation.container import formula
from engine.layers.definition.composite import CallLayer, Composite
from engine.layers.definition.overload import overload
from engine.layers.definition.registry import register
from engine.layers.reduction.distance import vector_norm
from engine.layers.reduction.reduction import Mean, Reduction, Sum
from engine.layers.shape.expand import ExpandAs
from engine.promotion import Category, dtype_category, real_dtype
from engine.tensor import Array, DType, dtype_name


@register("torch.var", presets={"takes_root": False}, formula="sum((x - mean) ** 2) / (N - correction) over dim")
@register("torch.std", presets={"takes_root": True}, formula="the square root of the variance over dim")
class Spread(Reduction):
    """The variance over dim, or its square root.

    ``unbiased`` may be the correction itself, a number, as the converter writes it; True is 1.
    """

    takes_root: bool
    unbiased: bool | int | float | None = True
    correction: int | float | None = None

    def _natural_dtype(self, dtype: DType) -> DType:
        if dtype_category(dtype) in (Category.BOOL, Category.INTEGER):
            raise ShapeError("integers have no deviation", found=dtype_name(dtype), expected="a floating dtype")
        return real_dtype(dtype)

    def _working_dtype(self, dtype: DType) -> DType:
        self._natural_dtype(dtype)
        return dtype if dtype.kind == "c" else super()._working_dtype(dtype)

    def _reduce(self, input: Array, axes: tuple[int, ...]) -> Any:
        """Return the mean squared distance, with the correction subtracted from the count; NaN or inf if too few."""
        count = math.prod(input.shape[axis] for axis in axes)
        away = np.abs(input - input.sum(axes, keepdims=True) / np.asarray(count, input.dtype))
        given = self.unbiased if self.correction is None else self.correction
        divisor = max(count - (1 if given is None else float(given)), 0.0)
        variance = np.asarray((away * away).sum(axes) / away.dtype.type(divisor))
        return np.sqrt(variance) if self.takes_root else variance


class SpreadMean(Composite):
    """The variance, or the standard deviation, and the mean over dim."""

    takes_root: bool
    dim: tuple[int, ...] | None = None
    unbiased: bool | int | float | None = True
    keepdim: bool = False

    def compose(self, call: CallLayer, input: Array) -> tuple[Any, Any]:
        spread = Spread(takes_root=self.takes_root, dim=self.dim, keepdim=self.keepdim, unbiased=self.unbiased)
        return call(spread, input), call(Mean(dim=self.dim, keepdim=self.keepdim), input)


for _name, _takes_root in (("var", False), ("std", True)):
    _type, _both = f"torch.{_name}", partial(SpreadMean, takes_root=_takes_root)
    overload(f"aten::{_name}", (_type, "input unbiased"), (_type, "input dim unbiased keepdim"))
    overload(f"aten::{_name}_mean", (_both, "input unbiased"), (_both, "input dim unbiased keepdim"))


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
class NormExceptDim(Composite):
    """The norm of every slice along dim, whose axes are kept as ones; of everything if dim is -1."""

    pow: int = 2
    dim: int = 0

    def compose(self, call: CallLayer, input: Array) -> Any:
        rank = len(input.shape)
        if not -1 <= self.dim < rank:
            raise ShapeError("dim is out of range", found=self.dim, expected=f"-1 to {rank - 1}")
        others = tuple(axis for axis in range(rank) if axis != self.dim)
        return call(Norm(p=self.pow) if self.dim == -1 else Norm(p=self.pow, dim=others, keepdim=True), input)


@register("aten::dist", positional=("input", "other", "p"))
class Distance(Composite):
    """The p-norm of input - other, broadcast and flattened."""

    p: int | float = 2

    def compose(self, call: CallLayer, input: Array, other: Array) -> Any:
        return call(Norm(p=self.p), formula(call, "sub(@0,@1)", input, other))


@register("F.normalize")
class Normalize(Composite):
    """x / max(norm(x), eps) with the norm of order p along dim."""

    p: float = 2.0
    dim: int = 1
    eps: float = 1e-12

    def compose(self, call: CallLayer, input: Array) -> Any:
        length = call(Norm(p=self.p, dim=(self.dim,), keepdim=True), input)
        return formula(call, f"div(@0,max(@1,{self.eps}))", input, length)


@register("F.pairwise_distance")
class PairwiseDistance(Composite):
    """norm(x1 - x2 + eps) of order p along the last axis, row by row.

    Shapes:
        x1 (..., M), x2 (..., M), broadcast against each other  ->  (...) or (..., 1) with keepdim
    """

    p: float = 2.0
    eps: float = 1e-6
    keepdim: bool = False

    def compose(self, call: CallLayer, x1: Array, x2: Array) -> Any:
        if not x1.shape and not x2.shape:
            raise ShapeError("a distance needs vectors", found="0-dim tensors")
        difference = formula(call, f"add(sub(@0,@1),{self.eps})", x1, x2)
        return call(Norm(p=self.p, dim=(-1,), keepdim=self.keepdim), difference)


@register("aten::cosine_similarity", positional=("x1", "x2", "dim", "eps"))
class CosineSimilarity(Composite):
    """Sum along dim of x1 / max(norm(x1), eps) times x2 / max(norm(x2), eps).

    Shapes:
        x1, x2 broadcast against each other  ->  that shape without dim
    """

    dim: int = 1
    eps: float = 1e-8

    def compose(self, call: CallLayer, x1: Array, x2: Array) -> Any:
        both = formula(call, "mul(@0,@1)", x1, x2)
        directions = [call(Normalize(dim=self.dim, eps=self.eps), call(ExpandAs(), each, both)) for each in (x1, x2)]
        return call(Sum(dim=(self.dim,)), formula(call, "mul(@0,@1)", *directions))
