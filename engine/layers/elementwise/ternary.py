"""Element-wise functions of an input and two more operands."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.errors import ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.operands.bounds import clamped
from engine.layers.operands.precision import check_ordered, working_dtype
from engine.promotion import Category, broadcast_shapes, cast, dtype_category, result_type
from engine.tensor import Array, DType, Number, Shape, TensorSpec


def _common(*operands: Any) -> TensorSpec:
    """Return the common dtype and shape of tensors and numbers; None stands for an omitted operand."""
    given = [operand for operand in operands if operand is not None]
    return TensorSpec(broadcast_shapes(*(_shape(operand) for operand in given)), result_type(*given))


def _shape(operand: Any) -> Shape:
    return operand.shape if isinstance(operand, (np.ndarray, TensorSpec)) else ()


def _wide(operand: Array | Number, dtype: DType) -> Array:
    """Return an operand in the dtype computed in; a number keeps digits that a narrow dtype lacks."""
    return cast(cast(operand, dtype) if isinstance(operand, np.ndarray) else operand, working_dtype(dtype))


@register("torch.clamp")
class Clamp(Layer):
    """min(max(x, min), max), in the common dtype; max wins where min is larger. NaN in any operand gives NaN.

    PyTorch needs a bound; an ONNX file may omit both, and then nothing is done.
    """

    def infer(self, input: TensorSpec, min: Any = None, max: Any = None) -> TensorSpec:
        spec = _common(input, min, max)
        check_ordered(spec.dtype)
        return spec

    def forward(self, input: Array, min: Any = None, max: Any = None) -> Array:
        dtype = self.infer(input, min, max).dtype  # type: ignore[arg-type]
        result = cast(input, dtype)
        low, high = (None if each is None else cast(each, dtype) for each in (min, max))
        with np.errstate(all="ignore"):
            if low is not None and high is not None and low.ndim == high.ndim == 0:
                return clamped(result, low, high)
            if low is not None:
                result = np.maximum(result, low)
            if high is not None:
                result = np.minimum(result, high)
        return np.asarray(result)


def between(start: Array, end: Array, weight: Array) -> Array:
    """Compute start + weight * (end - start) from the nearer end, so that both ends are exact."""
    way = end - start
    return np.asarray(np.where(np.abs(weight) < 0.5, start + weight * way, end - way * (1 - weight)))


@register("torch.lerp")
class Lerp(Layer):
    """x + weight * (end - x)."""

    def infer(self, input: TensorSpec, end: TensorSpec, weight: TensorSpec | Number) -> TensorSpec:
        if dtype_category(input.dtype) in (Category.BOOL, Category.INTEGER):
            raise ShapeError("integers cannot be interpolated", found=input.dtype, expected="a floating dtype")
        return TensorSpec(_common(input, end, weight).shape, input.dtype)

    def forward(self, input: Array, end: Array, weight: Array | Number) -> Array:
        spec = self.infer(input, end, weight)  # type: ignore[arg-type]
        start, stop, share = (_wide(each, input.dtype) for each in (input, end, weight))
        with np.errstate(all="ignore"):
            result = between(start, stop, share)
        return cast(np.broadcast_to(result, spec.shape), input.dtype)  # type: ignore[arg-type]


class _Fused(Layer):
    """Base of layers that add value times something of two tensors."""

    def infer(self, input: TensorSpec, tensor1: TensorSpec, tensor2: TensorSpec, value: Number = 1) -> TensorSpec:
        return _common(input, tensor1, tensor2)

    def _operands(self, *operands: Array | Number) -> tuple[DType, list[Array]]:
        dtype = _common(*operands[:3]).dtype
        return dtype, [_wide(operand, dtype) for operand in operands]


@register("torch.addcmul")
class AddCMul(_Fused):
    """x + value * tensor1 * tensor2."""

    def forward(self, input: Array, tensor1: Array, tensor2: Array, value: Number = 1) -> Array:
        dtype, (x, a, b, factor) = self._operands(input, tensor1, tensor2, value)
        with np.errstate(all="ignore"):
            return cast(np.asarray(x + factor * a * b), dtype)


@register("torch.addcdiv")
class AddCDiv(_Fused):
    """x + value * tensor1 / tensor2, not for integers."""

    def infer(self, input: TensorSpec, tensor1: TensorSpec, tensor2: TensorSpec, value: Number = 1) -> TensorSpec:
        spec = _common(input, tensor1, tensor2)
        if dtype_category(result_type(tensor1, tensor2)) in (Category.BOOL, Category.INTEGER):
            raise ShapeError("integers cannot be divided here", found=spec.dtype, expected="a floating dtype")
        return spec

    def forward(self, input: Array, tensor1: Array, tensor2: Array, value: Number = 1) -> Array:
        dtype, (x, a, b, factor) = self._operands(input, tensor1, tensor2, value)
        with np.errstate(all="ignore"):
            return cast(np.asarray(x + factor * (a / b)), dtype)
