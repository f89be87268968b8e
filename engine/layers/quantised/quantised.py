"""Quantised tensors: integers q that represent (q - zero_point) * scale."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from engine.errors import ShapeError
from engine.layers.operands.bounds import extremes
from engine.promotion import cast
from engine.tensor import Array, DType

FLOAT32: Final[DType] = np.dtype(np.float32)
# numpy functions that only view or describe an array.
_VIEWS: Final = (
    *(np.reshape, np.transpose, np.swapaxes, np.moveaxis, np.expand_dims, np.squeeze, np.broadcast_to),
    *(np.flip, np.shares_memory, np.may_share_memory, np.ndim, np.shape, np.size),
)
_ORDERED: Final = (np.maximum, np.minimum)
_SPEAKERS: Final = ("engine.layers.quantised.quantise", "engine.layers.quantised.quantised_product")


class Quantised(np.ndarray[Any, Any]):
    """Array of integers with a scale and a zero point, which its views inherit.

    Minimum and maximum can be computed from the integers; all other arithmetic would ignore the scale, and is refused.
    """

    scale: float = 1.0
    zero_point: int = 0

    def __array_finalize__(self, source: object) -> None:
        self.scale = getattr(source, "scale", 1.0)
        self.zero_point = getattr(source, "zero_point", 0)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if ufunc not in _ORDERED or method != "__call__" or kwargs:
            raise refused(ufunc.__name__)
        first, second = (self._aligned(each) for each in inputs)
        return self.like(np.asarray(ufunc(first, second)))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function not in _VIEWS:
            raise refused(function.__name__)
        return super().__array_function__(function, types, args, kwargs)

    def like(self, array: Array) -> Quantised:
        """Return integers with the scale and zero point of this tensor."""
        return quantised(array, self.scale, self.zero_point)

    @property
    def distances(self) -> Array:
        """Distances q - zero_point, as float64, which is exact."""
        return integers(self).astype(np.float64) - self.zero_point

    def _aligned(self, other: Any) -> Array:
        """Return the integers of a tensor of the same scale and zero point, or a number rounded to them."""
        if not isinstance(other, Quantised):
            return rounded(np.asarray(other), self.scale, self.zero_point, self.dtype)
        if (other.scale, other.zero_point, other.dtype) != (self.scale, self.zero_point, self.dtype):
            raise ShapeError(
                "tensors have different scales, zero points or dtypes", found=_shown(other), expected=_shown(self)
            )
        return integers(other)


def refused(function: str) -> ShapeError:
    """Return the error for arithmetic on a quantised tensor."""
    return ShapeError(
        "the operator is not defined for quantised tensors", found=function, expected="torch.dequantize before it"
    )


def integers(array: Array) -> Array:
    """Return a tensor without its scale and zero point."""
    return array.view(np.ndarray)


def quantised(array: Array, scale: float, zero_point: int) -> Quantised:
    """Return integers with a scale and a zero point."""
    result = array.view(Quantised)
    result.scale, result.zero_point = scale, zero_point
    return result


def as_quantised(operand: object, name: str = "input") -> Quantised:
    """Return an operand that must be quantised.

    Raises:
        ShapeError: when it is not.
    """
    if not isinstance(operand, Quantised):
        found = str(operand.dtype) if isinstance(operand, np.ndarray) else type(operand).__name__
        raise ShapeError(f"{name} is not quantised", found=found, expected="a result of torch.quantize_per_tensor")
    return operand


def rounded(x: Array, scale: Any, zero_point: Any, dtype: DType) -> Array:
    """Return the integers nearest to x / scale + zero_point, halves to even, clipped to the dtype."""
    return places(x, np.float32(scale), zero_point, *extremes(dtype)).astype(dtype)


def places(x: Array, scale: Any, zero_point: Any, low: int, high: int) -> Array:
    """Return the integer nearest to x / scale + zero_point between low and high, as float64, like PyTorch."""
    with np.errstate(all="ignore"):
        nearest = np.rint(cast(x, FLOAT32) * (np.float32(1) / scale)).astype(np.float64) + zero_point
    return np.asarray(np.clip(np.nan_to_num(nearest, nan=low, posinf=high, neginf=low), low, high))


def _shown(tensor: Quantised) -> str:
    return f"{tensor.dtype} with scale {tensor.scale} and zero point {tensor.zero_point}"


def speaks_of_quantised(layer: object) -> bool:
    """Return whether a layer makes or takes quantised tensors: integers with a scale."""
    return type(layer).__module__ in _SPEAKERS
