"""Layers of scripted models only: tensors made of numbers, dtypes and optionals as values, conversions."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from engine.errors import ShapeError
from engine.ir.sizes import has_sizes, size_array, sizes_dtype
from engine.layers.creation.container import Arrangement
from engine.layers.creation.creation import FLOAT32
from engine.layers.definition.layer import Layer
from engine.layers.definition.overload import overload
from engine.layers.definition.registry import register
from engine.promotion import cast
from engine.tensor import UNKNOWN, Array, DType, TensorSpec, parse_dtype

_BOOL: Final = np.dtype(np.bool_)
_DTYPE_AT: Final = {5: 1, 6: 2, 8: 1}


class FromData(Layer):
    """The numbers of a list, nested or not, as a tensor; int64 for whole numbers, else float32, or as in dtype."""

    takes_sizes = True

    dtype: DType | None = None

    def infer(self, data: Any) -> Any:
        try:
            made = self.forward(_zeros(data))
        except ShapeError:
            return UNKNOWN
        return TensorSpec(made.shape, self.dtype or made.dtype) if self.dtype or _has_known_kind(data) else UNKNOWN

    def forward(self, data: Any) -> Array:
        if has_sizes(data):
            array = size_array(_plain(data))
            return cast(array, self.dtype or sizes_dtype(array))
        try:
            array = np.array(_plain(data))
        except (ValueError, TypeError) as exc:
            raise ShapeError("not a list of numbers", found=f"{data!r:.60}") from exc
        if array.dtype.kind not in "biufc":
            raise ShapeError("not a list of numbers", found=f"{data!r:.60}")
        if isinstance(data, np.ndarray):
            return cast(array, self.dtype or data.dtype)
        default = (
            FLOAT32 if array.dtype.kind == "f" else np.dtype(np.complex64) if array.dtype.kind == "c" else array.dtype
        )
        return cast(array, self.dtype or default)


def _plain(data: Any) -> Any:
    """Return data with tensors of one element as that element."""
    if isinstance(data, np.ndarray):
        return data.reshape(()) if data.size == 1 and data.ndim else data
    return [_plain(item) for item in data] if isinstance(data, (list, tuple)) else data


def _zeros(data: Any) -> Any:
    """Return data with unknown numbers as integers, like sizes."""
    if isinstance(data, TensorSpec):
        return np.zeros([dim or 1 for dim in data.shape], data.dtype)
    if isinstance(data, (list, tuple)):
        return [_zeros(item) for item in data]
    return 0 if data is UNKNOWN else data.__class__() if has_sizes(data) else data


def _has_known_kind(data: Any) -> bool:
    """Return whether the kind of the numbers is known: sizes are integers, other unknown numbers may be of any kind."""
    items = data if isinstance(data, (list, tuple)) else [data]
    return all(item is not UNKNOWN and not isinstance(item, TensorSpec) for item in items)


overload("aten::tensor", (FromData, "data dtype device requires_grad"))
overload("aten::as_tensor", (FromData, "data dtype device"))


@register("prim::dtype")
class DTypeOf(Layer):
    """The dtype of a tensor, as a value for operators that take one."""

    does_arithmetic = False

    def infer(self, input: TensorSpec) -> DType:
        return input.dtype

    def forward(self, input: Array) -> DType:
        return input.dtype


@register("prim::device")
class DeviceOf(Layer):
    """The device of a tensor: always the CPU."""

    does_arithmetic = False

    def infer(self, input: TensorSpec) -> str:
        return "cpu"

    def forward(self, input: Array) -> str:
        return "cpu"


@register("aten::to")
class RawTo(Layer):
    """The input in another dtype, or in that of another tensor.

    Operands: input, then (dtype, non_blocking, copy, memory_format), the same with a tensor for the dtype or a device
    before it, or (dtype, layout, device, pin_memory, non_blocking, copy, memory_format). Without a dtype it stays.
    """

    does_arithmetic = False
    takes_sizes = True

    def infer(self, input: TensorSpec, *operands: object) -> TensorSpec:
        return TensorSpec(input.shape, self.result_dtype(input.dtype, operands))

    def forward(self, input: Array, *operands: object) -> Array:
        return cast(input, self.result_dtype(input.dtype, operands))

    def result_dtype(self, own: DType, operands: tuple[Any, ...]) -> DType:
        """Return the dtype of the result of an input of dtype ``own``."""
        place = _DTYPE_AT.get(len(operands) + 1)
        if place is None:
            raise ShapeError("no schema has this number of operands", found=len(operands) + 1, expected="5, 6 or 8")
        wanted = operands[place - 1]
        if wanted is None:
            return own
        return wanted.dtype if isinstance(wanted, (np.ndarray, TensorSpec)) else parse_dtype(wanted)


@register("aten::_unwrap_optional")
class Unwrap(Arrangement):
    """A value that must not be None.

    Raises:
        ShapeError: it is None.
    """

    def infer(self, value: Any) -> Any:  # type: ignore[override]
        return UNKNOWN if value is None else value

    def forward(self, value: Any) -> Any:
        if value is None:
            raise ShapeError("the optional value is absent")
        return value


@register("aten::__isnot__", positional=("value", "other"))
class IsNot(Layer):
    """A boolean: a value is another object than a second one, as in ``x is not None``."""

    takes_unknown = True
    does_arithmetic = False

    def infer(self, value: Any = None, other: Any = None) -> TensorSpec:
        return TensorSpec((), _BOOL)

    def forward(self, value: Any = None, other: Any = None) -> Array:
        return np.asarray(value is not other, _BOOL)
