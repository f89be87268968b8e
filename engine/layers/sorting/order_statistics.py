"""Values at a position in sorted order: median, mode and quantiles."""

from __future__ import annotations

from functools import partial
from typing import Final, Literal

import numpy as np

from engine.errors import ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.overload import overload
from engine.layers.definition.registry import register
from engine.layers.elementwise.ternary import between
from engine.layers.operands.axes import checked_axis, sizes
from engine.layers.operands.precision import INT64, working_dtype
from engine.layers.reduction.reduction import Reduction
from engine.layers.sorting.sorting import sort_order
from engine.promotion import Category, cast, dtype_category
from engine.tensor import Array, Shape, TensorSpec, dtype_name, format_shape


class _Chosen(Layer):
    """Base of layers that choose one element along dim and return its position."""

    dim: int = -1
    keepdim: bool = False

    def infer(self, input: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
        shape = self._shape(input.shape)
        return TensorSpec(shape, input.dtype), TensorSpec(shape, INT64)

    def forward(self, input: Array) -> tuple[Array, Array]:
        shape = sizes(self._shape(input.shape))
        row = np.moveaxis(np.atleast_1d(input), checked_axis(self.dim, input.ndim), -1)
        places = self._choose(cast(row, working_dtype(row.dtype)))
        values = np.take_along_axis(row, places[..., None], -1)
        return values.reshape(shape), places.reshape(shape)

    def _choose(self, rows: Array) -> Array:
        """Return the position of the chosen element of every row."""
        raise NotImplementedError

    def _shape(self, shape: Shape) -> Shape:
        if shape and shape[checked_axis(self.dim, len(shape))] == 0:
            raise ShapeError("the axis is empty", found=format_shape(shape))
        return Reduction(dim=(self.dim,), keepdim=self.keepdim)._reduced(shape)


class Median(Layer):
    """The middle element along dim, the lower of two, and its position; without dim the one of all elements.

    Parameters:
        ignores_nan: NaN is left out; else the median is NaN if there is one.
    """

    ignores_nan: bool
    dim: int | None = None
    keepdim: bool = False

    def infer(self, input: TensorSpec) -> TensorSpec | tuple[TensorSpec, TensorSpec]:
        if self.dim is None:
            return TensorSpec((), input.dtype)
        return self._along(self.dim).infer(input)

    def forward(self, input: Array) -> Array | tuple[Array, Array]:
        if self.dim is not None:
            return self._along(self.dim).forward(input)
        return self._along(-1).forward(input.reshape(-1))[0] if input.size else cast(np.nan, input.dtype)

    def _along(self, dim: int) -> _Chosen:
        return (_NanMiddle if self.ignores_nan else _Middle)(dim=dim, keepdim=self.keepdim)


class _Middle(_Chosen):
    def _choose(self, rows: Array) -> Array:
        middle = sort_order(rows, rows.ndim - 1)[..., (rows.shape[-1] - 1) // 2]
        missing = np.isnan(rows) if rows.dtype.kind == "f" else np.zeros(rows.shape, np.bool_)
        return np.where(missing.any(-1), missing.argmax(-1), middle)


class _NanMiddle(_Chosen):
    def _choose(self, rows: Array) -> Array:
        missing = np.isnan(rows).sum(-1) if rows.dtype.kind == "f" else np.zeros(rows.shape[:-1], np.int64)
        middle = np.maximum(rows.shape[-1] - missing - 1, 0) // 2
        return np.take_along_axis(sort_order(rows, rows.ndim - 1), middle[..., None], -1)[..., 0]


for _type, _ignores_nan in (("aten::median", False), ("aten::nanmedian", True)):
    _median = partial(Median, ignores_nan=_ignores_nan)
    overload(_type, (_median, "input"), (_median, "input dim keepdim"))


@register("aten::mode")
class Mode(_Chosen):
    """The most frequent element, the smallest of several; the position is that of its last occurrence."""

    def _choose(self, rows: Array) -> Array:
        places = sort_order(rows, rows.ndim - 1)
        ordered = np.take_along_axis(rows, places, -1)
        starts = np.concatenate([np.ones_like(ordered[..., :1], np.bool_), ordered[..., 1:] != ordered[..., :-1]], -1)
        first = np.maximum.accumulate(np.where(starts, np.arange(rows.shape[-1]), 0), -1)
        lengths = np.arange(rows.shape[-1]) - first
        return np.take_along_axis(places, lengths.argmax(-1)[..., None], -1)[..., 0]


_POSITIONAL: Final = ("input", "q", "dim", "keepdim", "interpolation")


@register("torch.quantile", positional=_POSITIONAL)
class Quantile(Layer):
    """The value below which a share q of the elements lies; NaN if an element is NaN, unless those are ignored.

    Shapes:
        a vector q adds a leading axis to the result.
    """

    dim: int | None = None
    keepdim: bool = False
    interpolation: Literal["linear", "lower", "higher", "nearest", "midpoint"] = "linear"
    ignores_nan: bool = False

    def infer(self, input: TensorSpec, q: TensorSpec | float) -> TensorSpec:
        if dtype_category(input.dtype) is not Category.FLOATING:
            raise ShapeError("only floating tensors have quantiles", found=dtype_name(input.dtype))
        lead = q.shape if isinstance(q, TensorSpec) else ()
        if len(lead) > 1:
            raise ShapeError("q must be a number or a vector", found=format_shape(lead))
        dims = None if self.dim is None else (self.dim,)
        return TensorSpec((*lead, *Reduction(dim=dims, keepdim=self.keepdim)._reduced(input.shape)), input.dtype)

    def forward(self, input: Array, q: Array | float) -> Array:
        shares = np.asarray(q, np.float64)
        shape = self.infer(TensorSpec(input.shape, input.dtype), TensorSpec(shares.shape, shares.dtype)).shape
        axis = 0 if self.dim is None else checked_axis(self.dim, input.ndim)
        rows = np.moveaxis(input.reshape(-1) if self.dim is None else np.atleast_1d(input), axis, -1)
        if rows.shape[-1] == 0 or not ((shares >= 0) & (shares <= 1)).all():
            raise ShapeError(
                "q is out of range or there are no elements", found=f"q {shares.tolist()} of {rows.shape[-1]} elements"
            )
        return self._between(np.sort(rows, -1), shares).reshape(shape)  # type: ignore[arg-type]

    def _between(self, ordered: Array, shares: Array) -> Array:
        missing = np.isnan(ordered)
        last = (
            np.maximum((~missing).sum(-1) - 1, 0)
            if self.ignores_nan
            else np.full(missing.shape[:-1], missing.shape[-1] - 1)
        )
        result = self._interpolated(ordered, shares.reshape(-1, *(1,) * last.ndim) * last)
        return result if self.ignores_nan else np.where(missing[..., -1], ordered.dtype.type(np.nan), result)

    def _interpolated(self, ordered: Array, at: Array) -> Array:
        low, high = np.floor(at).astype(np.int64), np.ceil(at).astype(np.int64)
        if self.interpolation in ("lower", "higher", "nearest"):
            place = {"lower": low, "higher": high, "nearest": np.rint(at).astype(np.int64)}[self.interpolation]
            return _pick(ordered, place)
        weight = np.full_like(at, 0.5) if self.interpolation == "midpoint" else at - low
        below, above = _pick(ordered, low), _pick(ordered, high)
        with np.errstate(all="ignore"):
            return between(below, above, weight.astype(ordered.dtype))


def _pick(ordered: Array, places: Array) -> Array:
    """Return elements of every row at one position for each leading index."""
    picked = [np.take_along_axis(ordered, place[..., None], -1)[..., 0] for place in places]
    return np.stack(picked) if picked else np.empty(places.shape, ordered.dtype)
