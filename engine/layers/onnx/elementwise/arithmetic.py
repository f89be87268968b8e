"""Arithmetic that differs from PyTorch's: shifts, conversions, powers, cumulative sums and products."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from engine.errors import ShapeError
from engine.layers.definition.layer import NO_ANNOTATIONS, Annotations, Layer
from engine.layers.definition.registry import register
from engine.layers.elementwise.arithmetic import Div
from engine.layers.elementwise.base import Elementwise
from engine.layers.elementwise.cast import To
from engine.layers.linear.square import check_square
from engine.layers.onnx.operands.adapter import Adapter, dtype_of, shape_of
from engine.layers.onnx.operands.constants import needed, whole_number
from engine.layers.onnx.operands.dtypes import converted, onnx_dtype
from engine.layers.operands.axes import checked_axis
from engine.layers.operands.precision import widened, working_dtype
from engine.promotion import broadcast_shapes, cast
from engine.tensor import BFLOAT16, Array, DType, Number, TensorSpec, dtype_name, spec_of


class _Pair(Layer):
    """Base of elementwise functions of two broadcast operands of one dtype."""

    takes_sizes = True

    def infer(self, input: Any, other: Any) -> TensorSpec:
        dtype = dtype_of(input, dtype_of(other, np.dtype(np.int64)))
        for each in (input, other):
            if dtype_of(each, dtype) != dtype:
                raise ShapeError("operands have different dtypes", found=f"{input} and {other}")
        return TensorSpec(broadcast_shapes(shape_of(input), shape_of(other)), dtype)

    def forward(self, input: Array | Number, other: Array | Number) -> Array:
        spec = self.infer(*(_spec(each) for each in (input, other)))
        a, b = (cast(each, spec.dtype) for each in (input, other))
        with np.errstate(all="ignore"):
            return cast(np.asarray(self.combine(a, b)), spec.dtype)

    def combine(self, a: Array, b: Array) -> Any:
        """Apply the function."""
        raise NotImplementedError


def _spec(value: Any) -> Any:
    return spec_of(value) if isinstance(value, np.ndarray) else value


@register("Pow")
class Pow(Layer):
    """First operand to the power of the second, in the dtype of the first."""

    def infer(self, input: Any, other: Any) -> TensorSpec:
        dtype = dtype_of(input, dtype_of(other, np.dtype(np.float32)))
        return TensorSpec(broadcast_shapes(shape_of(input), shape_of(other)), dtype)

    def forward(self, input: Array | Number, other: Array | Number) -> Array:
        dtype = self.infer(_spec(input), _spec(other)).dtype
        base, exponent = np.asarray(input, dtype), np.asarray(other)
        is_whole = dtype.kind in "iu" and exponent.dtype.kind in "iu" and bool((exponent >= 0).all())
        with np.errstate(all="ignore"):
            if is_whole:
                return np.asarray(np.power(base, cast(exponent, dtype)))
            wide = working_dtype(dtype) if dtype.kind not in "iu" else np.dtype(np.float64)
            return cast(np.asarray(np.power(cast(base, wide), cast(exponent, wide))), dtype)


@register("Div")
class OnnxDiv(Adapter):
    """Quotient; truncated towards zero for integers."""

    canonicalises = False
    takes_sizes = True
    canonical_layers = (Div,)

    def canonical(self, input: Any, other: Any) -> Layer:
        kinds = {dtype_of(each, np.dtype(np.float32)).kind for each in (input, other)}
        return Div(rounding_mode="trunc" if kinds <= set("iu") else None)

    def forward(self, input: Array | Number, other: Array | Number) -> Any:
        return self.run(input, other)


@register("BitShift")
class BitShift(_Pair):
    """Bits shifted to the left or right; a shift by the width or more leaves the sign (right) or 0 (left)."""

    direction: Literal["LEFT", "RIGHT"]

    def combine(self, a: Array, b: Array) -> Any:
        if a.dtype.kind not in "iu":
            raise ShapeError("only integers have bits", found=dtype_name(a.dtype))
        is_left = self.direction == "LEFT"
        rest = cast(np.where((a < 0) & (not is_left), -1, 0), a.dtype)  # of int64, uint64 would become float64
        return np.where((b >= 0) & (b < 8 * a.dtype.itemsize), a << b if is_left else a >> b, rest)


@register("Cast")
class OnnxCast(Adapter):
    """Conversion to another dtype: fractions are truncated towards zero, nonzero numbers become True."""

    does_arithmetic = False
    takes_sizes = True
    canonicalises = False
    canonical_layers = (To,)

    to: int
    saturate: bool = True
    round_mode: Literal["up", "down", "nearest"] = "up"

    def __post_init__(self) -> None:
        _ = onnx_dtype(self.to)

    def infer(self, input: Any) -> TensorSpec:
        return TensorSpec(shape_of(input), onnx_dtype(self.to))

    def canonical(self, *operands: Any) -> Layer:
        dtypes = [onnx_dtype(self.to), *(each.dtype for each in operands if isinstance(each, TensorSpec))]
        if len(dtypes) != 2 or any(each.kind not in "biuf" and each != BFLOAT16 for each in dtypes):
            raise NotImplementedError
        return To(dtype=dtypes[0])

    def forward(self, input: Array | Number) -> Array:
        return converted(input, onnx_dtype(self.to), self.saturate, self.round_mode)


@register("CastLike", positional=("input", "target"))
class CastLike(Layer):
    """Conversion to the dtype of another tensor."""

    does_arithmetic = False

    saturate: bool = True
    round_mode: Literal["up", "down", "nearest"] = "up"

    annotations: Annotations = NO_ANNOTATIONS

    def infer(self, input: Any, target: Any) -> TensorSpec:
        return TensorSpec(shape_of(input), self._dtype(target))

    def forward(self, input: Array | Number, target: Any) -> Array:
        return converted(input, self._dtype(target), self.saturate, self.round_mode)

    def _dtype(self, target: Any) -> DType:
        noted = self.annotations.outputs[0]
        return dtype_of(target, noted.dtype if noted is not None else np.dtype(np.float32))


@register("BitCast")
class BitCast(Layer):
    """Reinterpretation of the bits as another dtype of the same width."""

    to: int

    def __post_init__(self) -> None:
        _ = onnx_dtype(self.to)

    def infer(self, input: TensorSpec) -> TensorSpec:
        dtype = onnx_dtype(self.to)
        if dtype.itemsize != input.dtype.itemsize:
            raise ShapeError("the widths differ", found=dtype_name(input.dtype), expected=dtype_name(dtype))
        return TensorSpec(input.shape, dtype)

    def forward(self, input: Array) -> Array:
        spec = self.infer(TensorSpec(input.shape, input.dtype))
        return np.ascontiguousarray(input).view(spec.dtype).reshape(input.shape)


class _Running(Elementwise):
    """Base of cumulative sums and products.

    Parameters:
        exclusive: leave out the element itself.
        reverse: accumulate from the end.
    """

    exclusive: bool = False
    reverse: bool = False

    def infer(self, input: TensorSpec, *others: object) -> TensorSpec:
        axis = whole_number(others[0], "axis") if others else None
        if axis is not None:
            checked_axis(axis, input.rank)
        return input

    def forward(self, input: Array, axis: Any) -> Array:
        place = checked_axis(needed(whole_number(axis, "axis"), "axis"), input.ndim)
        row = np.atleast_1d(cast(input, working_dtype(input.dtype)))
        row = np.flip(row, place) if self.reverse else row
        with np.errstate(all="ignore"):
            total = self.accumulate(row, place)
        if self.exclusive:
            first = np.full_like(total.take([0] if total.shape[place] else [], place), self.start())
            total = np.concatenate([first, total.take(np.arange(max(total.shape[place] - 1, 0)), place)], place)
        total = np.flip(total, place) if self.reverse else total
        return cast(total, input.dtype).reshape(input.shape)

    def accumulate(self, row: Array, axis: int) -> Array:
        """Accumulate along an axis."""
        raise NotImplementedError

    def start(self) -> int:
        """Return the neutral element."""
        raise NotImplementedError


@register("CumSum", positional=("input", "axis"))
class OnnxCumSum(_Running):
    """Cumulative sum along an axis."""

    def accumulate(self, row: Array, axis: int) -> Array:
        return row.cumsum(axis, dtype=row.dtype)

    def start(self) -> int:
        return 0


@register("CumProd", positional=("input", "axis"))
class OnnxCumProd(_Running):
    """Cumulative product along an axis."""

    def accumulate(self, row: Array, axis: int) -> Array:
        return row.cumprod(axis, dtype=row.dtype)

    def start(self) -> int:
        return 1


@register("Det")
class Det(Layer):
    """Determinants of square matrices: input (..., M, M) -> (...)."""

    def infer(self, input: TensorSpec) -> TensorSpec:
        check_square(input.shape)
        return TensorSpec(input.shape[:-2], input.dtype)

    def forward(self, input: Array) -> Array:
        self.infer(TensorSpec(input.shape, input.dtype))
        return cast(np.asarray(np.linalg.det(widened(input))), input.dtype)
