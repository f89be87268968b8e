"""Reductions: one element of many, over some axes or all."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.onnx.operands.adapter import UnaryAdapter
from engine.layers.operands.axes import checked_axes
from engine.layers.operands.bounds import extremes
from engine.layers.reduction.extremum import AMax, AMin
from engine.layers.reduction.reduction import LogSumExp, Mean, Prod, Reduction, Sum
from engine.tensor import Array, DType, TensorSpec


class _Reduce(UnaryAdapter):
    """Base of reductions.

    Parameters:
        axes: all if there are none, unless noop_with_empty_axes: then every element is reduced by itself.
        keepdims: reduced axes stay, with size 1.
    Dtypes:
        the result has the input's.
    """

    axes: tuple[int, ...] | None = None
    keepdims: bool = True
    noop_with_empty_axes: bool = False

    def canonical(self, input: TensorSpec) -> Layer:
        if not self.axes and self.noop_with_empty_axes:
            return _OfEach(reduction=self._reduction(input), dtype=input.dtype)
        dims = checked_axes(self.axes, input.rank) if self.axes else None
        return self._reduction(input)(dim=dims, keepdim=self.keepdims, dtype=input.dtype)

    def _reduction(self, input: TensorSpec) -> type[Reduction]:
        (reduction,) = self.canonical_layers
        return reduction  # type: ignore[return-value]


class _OfEach(Layer):
    """A reduction over no axis: of every element by itself."""

    reduction: Any
    dtype: DType

    def infer(self, input: TensorSpec) -> TensorSpec:
        return input

    def forward(self, input: Array) -> Any:
        return self.reduction(dim=(-1,), dtype=self.dtype).forward(input[..., None])


class _Same(Reduction):
    """Base of reductions whose working dtype is the result's, integers included."""


class AbsSum(_Same):
    """The sum of magnitudes."""

    def _reduce(self, input: Array, axes: tuple[int, ...]) -> Any:
        return np.abs(input).sum(axes, dtype=input.dtype)


class SquareSum(_Same):
    """The sum of squares."""

    def _reduce(self, input: Array, axes: tuple[int, ...]) -> Any:
        return np.square(input).sum(axes, dtype=input.dtype)


class Length(_Same):
    """The root of the sum of squares."""

    def _reduce(self, input: Array, axes: tuple[int, ...]) -> Any:
        return np.sqrt(np.square(input).sum(axes, dtype=input.dtype))


class LogSum(_Same):
    """The logarithm of the sum."""

    def _reduce(self, input: Array, axes: tuple[int, ...]) -> Any:
        return np.log(input.sum(axes, dtype=input.dtype))


class _WholeMean(_Same):
    def _reduce(self, input: Array, axes: tuple[int, ...]) -> Any:
        count = np.prod([input.shape[axis] for axis in axes], dtype=np.int64)
        total = input.sum(axes, dtype=np.int64)
        return np.sign(total) * (np.abs(total) // max(int(count), 1))


class _Largest(_Same):
    def _reduce(self, input: Array, axes: tuple[int, ...]) -> Any:
        return input.max(axes, initial=extremes(input.dtype)[0])


class _Smallest(_Same):
    def _reduce(self, input: Array, axes: tuple[int, ...]) -> Any:
        return input.min(axes, initial=extremes(input.dtype)[1])


@register("ReduceMean", positional=("input", "axes"))
class ReduceMean(_Reduce):
    """The mean over axes; that of integers is cut towards zero."""

    canonical_layers = (Mean,)

    def _reduction(self, input: TensorSpec) -> type[Reduction]:
        return _WholeMean if input.dtype.kind in "iu" else Mean


@register("ReduceMax", positional=("input", "axes"))
class ReduceMax(_Reduce):
    """The largest element over axes; of none, what nothing is below."""

    canonicalises = False  # sizes decide: AMax knows no extreme of no elements
    canonical_layers = (AMax,)

    def _reduction(self, input: TensorSpec) -> type[Reduction]:
        return _Largest if 0 in input.shape else AMax


@register("ReduceMin", positional=("input", "axes"))
class ReduceMin(_Reduce):
    """The smallest element over axes; of none, what nothing is above."""

    canonicalises = False
    canonical_layers = (AMin,)

    def _reduction(self, input: TensorSpec) -> type[Reduction]:
        return _Smallest if 0 in input.shape else AMin


# The others differ by what they compute alone.
_REDUCTIONS: Final[dict[str, tuple[type[Reduction], str]]] = {
    "ReduceSum": (Sum, "The sum over axes."),
    "ReduceProd": (Prod, "The product over axes."),
    "ReduceL1": (AbsSum, "The sum of magnitudes over axes."),
    "ReduceL2": (Length, "sqrt(sum(x**2)) over axes."),
    "ReduceSumSquare": (SquareSum, "sum(x**2) over axes."),
    "ReduceLogSum": (LogSum, "log(sum(x)) over axes."),
    "ReduceLogSumExp": (LogSumExp, "log(sum(exp(x))) over axes, without overflow."),
}
for _type, (_reduction, _formula) in _REDUCTIONS.items():
    _body = {"canonical_layers": (_reduction,), "__doc__": _formula, "__module__": __name__}
    register(_type, positional=("input", "axes"))(type(_type, (_Reduce,), _body))
