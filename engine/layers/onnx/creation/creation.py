"""Tensors made of numbers: constants, ranges, diagonals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.ir.dims import largest
from engine.ir.ratios import InexactError
from engine.ir.sizes import has_sizes, specialise_sizes, step_count
from engine.layers.definition.layer import NO_ANNOTATIONS, Annotations, Layer
from engine.layers.definition.registry import register
from engine.layers.onnx.operands.constants import needed, single, whole_numbers
from engine.layers.onnx.shape.shape import checked_sizes
from engine.layers.operands.precision import INT64, check_ordered
from engine.limits import check_size
from engine.promotion import cast
from engine.tensor import UNKNOWN, Array, DType, Number, TensorSpec, is_known, known_value

_FLOAT32: DType = np.dtype(np.float32)


@register("ConstantOfShape", positional=("shape",))
class ConstantOfShape(Layer):
    """Tensor of a given shape filled with one number, 0.0 by default."""

    value: Any = 0.0
    annotations: Annotations = NO_ANNOTATIONS

    def __post_init__(self) -> None:
        if np.size(self.value) != 1:
            raise ParameterError("value is not one number", found=f"{np.size(self.value)} of them")

    def infer(self, shape: Any) -> Any:
        numbers = whole_numbers(shape, "shape")
        if numbers is not None:
            return TensorSpec(checked_sizes(numbers), self._dtype)
        rank = shape.shape[0] if isinstance(shape, TensorSpec) and shape.rank == 1 else None
        return UNKNOWN if rank is None else TensorSpec((None,) * rank, self._dtype)

    def forward(self, shape: Any) -> Array:
        sizes = checked_sizes(needed(whole_numbers(shape, "shape"), "shape"))
        if self.value is None:
            raise ShapeError("the converter has lost the constant 'value'", found="None", expected="a number")
        check_size(sizes, self._dtype)
        return np.full(sizes, cast(self.value, self._dtype))

    @property
    def _dtype(self) -> DType:
        noted = self.annotations.outputs[0]
        if noted is not None:
            return noted.dtype
        return _FLOAT32 if isinstance(self.value, float) else INT64


@register("Range", positional=("start", "limit", "delta"))
class Range(Layer):
    """Numbers start, start + delta, ... up to the limit, exclusive."""

    annotations: Annotations = NO_ANNOTATIONS

    def infer(self, start: Any, limit: Any, delta: Any) -> TensorSpec:
        values = known_value((start, limit, delta))
        dtype = self._dtype((start, limit, delta))
        return TensorSpec((_steps(*self._numbers(values, dtype)) if is_known(values) else None,), dtype)

    def forward(self, start: Any, limit: Any, delta: Any) -> Array:
        dtype = self._dtype((start, limit, delta))
        first, last, step = self._numbers((start, limit, delta), dtype)
        count = _steps(first, last, step)
        return cast(np.asarray(first + np.arange(count) * step), dtype)

    def _numbers(self, values: Any, dtype: DType) -> Sequence[Any]:
        check_ordered(dtype)
        return [single(cast(each, dtype), name) for name, each in zip(("start", "limit", "delta"), values, strict=True)]

    def _dtype(self, values: Any) -> DType:
        for each in values:
            if isinstance(each, (np.ndarray, TensorSpec)):
                return each.dtype
        noted = self.annotations.outputs[0]
        if noted is not None:
            return noted.dtype
        return _FLOAT32 if any(isinstance(each, float) for each in values) else INT64


def _steps(start: Number, limit: Number, delta: Number) -> int:
    if has_sizes((start, limit, delta)):
        try:
            return largest(step_count(start, limit, delta), 0)
        except InexactError:
            start, limit, delta = specialise_sizes((start, limit, delta))
    if delta == 0:
        raise ShapeError("delta is zero", found=0, expected="another number")
    if not all(map(np.isfinite, (start, limit, delta))):
        raise ShapeError("a range ends nowhere", found=f"{start}, {limit} and {delta}", expected="finite numbers")
    count = max(int(np.ceil((limit - start) / delta)), 0)
    check_size((count,), INT64, "the range")
    return count


@register("Constant", positional=())
class OnnxConstant(Layer):
    """Constant that the converter left as an operator: a number or a list of numbers."""

    value: Any = None
    value_float: float | None = None
    value_floats: tuple[float, ...] | None = None
    value_int: int | None = None
    value_ints: tuple[int, ...] | None = None
    annotations: Annotations = NO_ANNOTATIONS

    def __post_init__(self) -> None:
        if self._value is None:
            raise ParameterError("the converter has lost the constant", found="None", expected="numbers")

    def infer(self) -> TensorSpec:
        return TensorSpec(self.forward().shape, self.forward().dtype)

    def forward(self) -> Array:
        array, noted = np.asarray(self._value), self.annotations.outputs[0]
        dtype = _FLOAT32 if array.dtype.kind == "f" else array.dtype
        if noted is not None:
            dtype = noted.dtype
            array = array.reshape(noted.sizes) if array.size == 1 and noted.size == 1 else array
        return cast(array, dtype)

    @property
    def _value(self) -> Any:
        given = (self.value, self.value_float, self.value_floats, self.value_int, self.value_ints)
        return next((each for each in given if each is not None), None)
