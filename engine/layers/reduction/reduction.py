"""Sums, means, products and similar reductions over axes.

Without ``dim``, or with an empty one, all elements are reduced. The file drops ``dtype=``: if it annotates another
dtype for the output than the operator's natural one, the input is converted first.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, Literal

import numpy as np

from engine.errors import ShapeError
from engine.layers.definition.composite import CallLayer, Composite
from engine.layers.definition.layer import NO_ANNOTATIONS, Annotations, Layer
from engine.layers.definition.overload import overload
from engine.layers.definition.registry import register
from engine.layers.elementwise.arithmetic import Div
from engine.layers.elementwise.comparison import Predicate
from engine.layers.indexing.masking import MaskedFill
from engine.layers.operands.axes import checked_axes, sizes
from engine.layers.operands.precision import INT64, check_ordered, summed_dtype, working_dtype
from engine.layers.shape.shape import Reshape
from engine.promotion import Category, cast, dtype_category, float_dtype
from engine.tensor import Array, Dim, DType, Shape, TensorSpec, dtype_name, format_shape


class Reduction(Layer):
    """Base of layers that reduce many elements to one; a subclass defines how, and the dtype of the result.

    Parameters:
        noop_with_empty_dim: an empty dim is no axis instead of all (ONNX).
    """

    dim: tuple[int, ...] | None = None
    keepdim: bool = False
    dtype: DType | None = None
    noop_with_empty_dim: bool = False
    annotations: Annotations = NO_ANNOTATIONS

    def infer(self, input: TensorSpec) -> TensorSpec:
        return TensorSpec(self._reduced(input.shape), self.result_dtype(input.dtype))

    def forward(self, input: Array) -> Array:
        shape, dtype = self._reduced(input.shape), self.result_dtype(input.dtype)
        with np.errstate(all="ignore"):
            wide = np.atleast_1d(cast(input, self._working_dtype(input.dtype)))
            axes = self.axes(input.ndim)
            result = self._reduce(wide, axes) if axes else wide
        return cast(np.asarray(result).reshape(sizes(shape)), dtype)

    def flops(self, output: TensorSpec, *operands: Any) -> int:
        return operands[0].size or 0

    def _reduce(self, input: Array, axes: tuple[int, ...]) -> Any:
        """Return the reduction of an array of at least one axis."""
        raise NotImplementedError

    def _natural_dtype(self, dtype: DType) -> DType:
        """Return the result's dtype if none is requested."""
        return dtype

    def _working_dtype(self, dtype: DType) -> DType:
        return working_dtype(self._requested or self._natural_dtype(dtype))

    def result_dtype(self, dtype: DType) -> DType:
        return self._requested or self._natural_dtype(dtype)

    @cached_property
    def _requested(self) -> DType | None:
        """The dtype that the model requested, given or derived from the file's annotations."""
        source = self.annotations.inputs[0] if self.annotations.inputs else None
        target = self.annotations.outputs[0] if self.annotations.outputs else None
        if self.dtype is not None or source is None or target is None:
            return self.dtype
        natural = target.dtype if self._refuses(source.dtype) else self._natural_dtype(source.dtype)
        return target.dtype if self._refuses(source.dtype) or target.dtype != natural else None

    def _refuses(self, dtype: DType) -> bool:
        """Return whether this dtype has no result unless another is requested."""
        return False

    @property
    def is_of_nothing(self) -> bool:
        """Return whether an empty dim is no axis instead of all: the annotated result has the input's shape (ONNX)."""
        source = self.annotations.inputs[0] if self.annotations.inputs else None
        target = self.annotations.outputs[0] if self.annotations.outputs else None
        if self.dim or self.noop_with_empty_dim or source is None or target is None:
            return not self.dim and self.noop_with_empty_dim
        return source.shape == target.shape and any(size != 1 for size in source.shape)

    def axes(self, rank: int) -> tuple[int, ...]:
        """Return the reduced axes, counted from the front; empty if nothing is reduced."""
        if self.is_of_nothing:
            return ()
        return checked_axes(self.dim, rank) if self.dim else tuple(range(max(rank, 1)))

    def _reduced(self, shape: Shape) -> Shape:
        axes = self.axes(len(shape))
        if self.keepdim:
            return tuple(1 if axis in axes else dim for axis, dim in enumerate(shape))
        return tuple(dim for axis, dim in enumerate(shape) if axis not in axes)


@register("torch.sum")
class Sum(Reduction):
    """The sum over dim; integers and bools give int64."""

    def _natural_dtype(self, dtype: DType) -> DType:
        return summed_dtype(dtype)

    def _reduce(self, input: Array, axes: tuple[int, ...]) -> Any:
        return input.sum(axes, dtype=input.dtype)


@register("aten::sum_to_size", positional=("input", "size"))
class SumToSize(Composite):
    """The sum over the dimensions along which a tensor of this size would be repeated: the reverse of expand.

    Raises:
        ShapeError: a tensor of this size could not be expanded to the input.
    """

    size: tuple[Dim, ...]

    def infer(self, input: TensorSpec) -> TensorSpec:
        axes = self.axes(input.shape)
        return TensorSpec(self.size, Sum(dim=axes).infer(input).dtype if axes else input.dtype)

    def compose(self, call: CallLayer, input: Array) -> Any:
        axes = self.axes(input.shape)
        return call(Reshape(shape=self.size), call(Sum(dim=axes), input) if axes else input)

    def axes(self, shape: Shape) -> tuple[int, ...]:
        """Return the dimensions of an input of this shape that are summed over."""
        lead = len(shape) - len(self.size)
        pairs = [*zip(shape[max(lead, 0) :], self.size, strict=False)]
        if lead < 0 or any(size not in (1, None, dim) and dim is not None for dim, size in pairs):
            found, expected = format_shape(self.size), format_shape(shape)
            raise ShapeError("this size cannot be expanded to the input's", found=found, expected=expected)
        repeated = [lead + axis for axis, (dim, size) in enumerate(pairs) if size == 1 and dim != 1]
        return (*range(lead), *repeated)


@register("torch.mean")
class Mean(Reduction):
    """The mean over dim: NaN of no elements.

    Raises:
        ShapeError: for integers and bools, unless the file requests another dtype; in one of integers the mean is cut
            towards zero.
    """

    def _refuses(self, dtype: DType) -> bool:
        return dtype_category(dtype) in (Category.BOOL, Category.INTEGER)

    def _natural_dtype(self, dtype: DType) -> DType:
        if self._refuses(dtype):
            raise ShapeError("integers have no mean", found=dtype_name(dtype), expected="a floating or complex dtype")
        return dtype

    def _reduce(self, input: Array, axes: tuple[int, ...]) -> Any:
        count = math.prod(input.shape[axis] for axis in axes)
        if input.dtype.kind in "iu":
            total = input.sum(axes, dtype=np.int64)
            return np.sign(total) * (np.abs(total) // max(count, 1))
        return input.sum(axes) / np.asarray(count, input.dtype)


@register("torch.prod")
class Prod(Reduction):
    """The product over dim; integers and bools give int64."""

    def _natural_dtype(self, dtype: DType) -> DType:
        return summed_dtype(dtype)

    def _reduce(self, input: Array, axes: tuple[int, ...]) -> Any:
        return input.prod(axes, dtype=input.dtype)


overload("aten::prod", (Prod, "input dtype"), (Prod, "input dim keepdim dtype"))


@register("torch.logsumexp")
class LogSumExp(Reduction):
    """log(sum(exp(x))) over dim, shifted by the maximum so that exp cannot overflow."""

    def _natural_dtype(self, dtype: DType) -> DType:
        return float_dtype(dtype)

    def _reduce(self, input: Array, axes: tuple[int, ...]) -> Any:
        if input.dtype.kind in "biu":  # for integers, the result of which is an integer
            return np.asarray(self._reduce(input.astype(np.float64), axes)).astype(input.dtype)
        top = input.max(axes, keepdims=True, initial=-np.inf)
        shift = np.where(np.isfinite(top), top, np.zeros((), input.dtype))
        return np.log(np.exp(input - shift).sum(axes)) + shift.reshape(np.delete(shift.shape, axes))


@register("torch.any", presets={"mode": "any"}, formula="True if any element over dim is nonzero")
@register("torch.all", presets={"mode": "all"}, formula="True if all elements over dim are nonzero")
@register("torch.count_nonzero", presets={"mode": "count"}, formula="the number of nonzero elements over dim")
class NonZeroTest(Reduction):
    """A test whether any or all elements are nonzero, uint8 for uint8 and bool for all others; or their number."""

    mode: Literal["any", "all", "count"]

    def _natural_dtype(self, dtype: DType) -> DType:
        if self.mode == "count":
            return INT64
        return dtype if dtype == np.uint8 else np.dtype(np.bool_)

    def _working_dtype(self, dtype: DType) -> DType:
        return dtype

    def _reduce(self, input: Array, axes: tuple[int, ...]) -> Any:
        compute: Any = {"any": np.any, "all": np.all, "count": np.count_nonzero}[self.mode]
        return compute(input != 0, axes)


overload("aten::any", ("torch.any", "input"), ("torch.any", "input dim keepdim"))
overload("aten::all", ("torch.all", "input"), ("torch.all", "input dim keepdim"))


class _OfNumbers(Composite):
    """Base of reductions of all elements that are not NaN."""

    dim: tuple[int, ...] | None = None
    keepdim: bool = False
    dtype: DType | None = None

    def _sum(self, call: CallLayer, input: Array, missing: Array) -> Any:
        check_ordered(input.dtype)
        kept = call(MaskedFill(), input, missing, 0)
        return call(Sum(dim=self.dim, keepdim=self.keepdim, dtype=self.dtype), kept)


@register("aten::nansum", positional=("input", "dim", "keepdim", "dtype"))
class NanSum(_OfNumbers):
    """The sum over dim of all elements that are numbers."""

    def compose(self, call: CallLayer, input: Array) -> Any:
        return self._sum(call, input, call(Predicate(function="isnan"), input))


@register("aten::nanmean", positional=("input", "dim", "keepdim", "dtype"))
class NanMean(_OfNumbers):
    """The mean over dim of all elements that are numbers."""

    def compose(self, call: CallLayer, input: Array) -> Any:
        Mean(dtype=self.dtype).result_dtype(input.dtype)  # refuses integers
        missing = call(Predicate(function="isnan"), input)
        count = call(Sum(dim=self.dim, keepdim=self.keepdim), call(Predicate(function="logical_not"), missing))
        return call(Div(), self._sum(call, input, missing), count)
