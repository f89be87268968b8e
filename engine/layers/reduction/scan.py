"""Running sums, products and extremes along one axis, and differences between neighbours."""

from __future__ import annotations

from typing import Literal

import numpy as np

from engine.cancellation import cancellable
from engine.errors import ParameterError, ShapeError
from engine.layers.definition.layer import NO_ANNOTATIONS, Annotations, Layer
from engine.layers.definition.registry import register
from engine.layers.operands.axes import checked_axis, replaced
from engine.layers.operands.precision import INT64, check_ordered, summed_dtype, working_dtype
from engine.layers.shape.join import Cat
from engine.promotion import Category, cast, dtype_category
from engine.tensor import Array, DType, TensorSpec, dtype_name


class _Scan(Layer):
    """Base of layers whose elements depend on all earlier ones; the file drops ``dtype=``, see reduction."""

    dim: int
    dtype: DType | None = None
    annotations: Annotations = NO_ANNOTATIONS

    def infer(self, input: TensorSpec) -> TensorSpec:
        checked_axis(self.dim, input.rank)
        return TensorSpec(input.shape, self.result_dtype(input.dtype))

    def forward(self, input: Array) -> Array:
        axis, dtype = checked_axis(self.dim, input.ndim), self.result_dtype(input.dtype)
        with np.errstate(all="ignore"):
            result = self._scan(np.atleast_1d(cast(input, working_dtype(dtype))), axis)
        return cast(result.reshape(input.shape), dtype)

    def _scan(self, input: Array, axis: int) -> Array:
        raise NotImplementedError

    def _natural_dtype(self, dtype: DType) -> DType:
        return summed_dtype(dtype)

    def result_dtype(self, dtype: DType) -> DType:
        source = self.annotations.inputs[0] if self.annotations.inputs else None
        target = self.annotations.outputs[0] if self.annotations.outputs else None
        if self.dtype is None and source is not None and target is not None:
            return target.dtype if target.dtype != self._natural_dtype(source.dtype) else self._natural_dtype(dtype)
        return self.dtype or self._natural_dtype(dtype)


@register(
    "torch.cumsum",
    presets={"mode": "sum"},
    positional=("input", "dim", "dtype"),
    formula="out[i] = in[0] + ... + in[i]; integers and bools give int64",
)
@register("torch.cumprod", presets={"mode": "product"}, positional=("input", "dim", "dtype"),
          formula="out[i] = in[0] * ... * in[i]; integers and bools give int64")  # fmt: skip
class Running(_Scan):
    """The running sum, or product, along dim.

    Parameters:
        reverse: from the last element on.
        exclusive: without the element itself.
    """

    mode: Literal["sum", "product"]
    reverse: bool = False
    exclusive: bool = False

    def _scan(self, input: Array, axis: int) -> Array:
        x = np.flip(input, axis) if self.reverse else input
        combine = np.add if self.mode == "sum" else np.multiply
        result: Array = combine.accumulate(x, axis, dtype=x.dtype)
        if self.exclusive and result.size:
            first = np.full_like(result.take([0], axis), combine.identity)
            result = np.concatenate([first, result.take(np.arange(result.shape[axis] - 1), axis)], axis)
        return np.flip(result, axis) if self.reverse else result


@register("aten::logcumsumexp")
class LogCumSumExp(_Scan):
    """out[i] = log(exp(in[0]) + ... + exp(in[i])), without overflow."""

    def _natural_dtype(self, dtype: DType) -> DType:
        if dtype_category(dtype) is not Category.FLOATING:
            raise ShapeError("only floating tensors can be summed in logarithms", found=dtype_name(dtype))
        return dtype

    def _scan(self, input: Array, axis: int) -> Array:
        return np.asarray(np.logaddexp.accumulate(input, axis))


@register("torch.cummax", presets={"is_largest": True}, formula="the largest element so far, and its position")
@register("torch.cummin", presets={"is_largest": False}, formula="the smallest element so far, and its position")
class RunningExtreme(Layer):
    """The running extreme and its position, of equal ones the last; NaN persists."""

    is_largest: bool
    dim: int

    def infer(self, input: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
        check_ordered(input.dtype)
        checked_axis(self.dim, input.rank)
        return input, TensorSpec(input.shape, INT64)

    def forward(self, input: Array) -> tuple[Array, Array]:
        axis = checked_axis(self.dim, input.ndim)
        wide = np.atleast_1d(cast(input, working_dtype(input.dtype)))
        values = np.asarray((np.maximum if self.is_largest else np.minimum).accumulate(wide, axis))
        places = np.arange(wide.shape[axis]).reshape(replaced((1,) * wide.ndim, axis, -1))  # type: ignore[arg-type]
        reached = (wide == values) | (np.isnan(wide) if wide.dtype.kind == "f" else False)
        indices = np.maximum.accumulate(np.where(reached, places, 0), axis)
        return cast(values, input.dtype).reshape(input.shape), indices.reshape(input.shape)


@register("torch.diff", positional=("input", "n", "dim", "prepend", "append"))
class Diff(Layer):
    """out[i] = in[i + 1] - in[i], n times over; prepend and append lengthen the axis first. Bools are xor-ed."""

    n: int = 1
    dim: int = -1

    def __post_init__(self) -> None:
        if self.n < 0:
            raise ParameterError("n must not be negative", found=self.n)

    def infer(
        self, input: TensorSpec, prepend: TensorSpec | None = None, append: TensorSpec | None = None
    ) -> TensorSpec:
        if input.rank == 0:
            raise ShapeError("a 0-dim tensor has no neighbours")
        axis = checked_axis(self.dim, input.rank)
        joined = Cat(dim=axis)._joined_spec([each for each in (prepend, input, append) if each is not None])
        length = joined.shape[axis]
        return TensorSpec(
            replaced(joined.shape, axis, None if length is None else max(length - self.n, 0)), joined.dtype
        )

    def forward(self, input: Array, prepend: Array | None = None, append: Array | None = None) -> Array:
        parts = [each for each in (prepend, input, append) if each is not None]
        axis = checked_axis(self.dim, input.ndim)
        joined = Cat(dim=axis).forward(*parts)
        with np.errstate(all="ignore"):
            for _ in cancellable(range(min(self.n, joined.shape[axis]))):
                joined = np.diff(joined, axis=axis)
            return np.asarray(joined)
