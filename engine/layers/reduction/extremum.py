"""Largest and smallest elements, and their positions. NaN counts as both; of equal elements the first is returned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from engine.errors import ShapeError
from engine.layers.definition.composite import CallLayer, Composite
from engine.layers.definition.layer import NO_ANNOTATIONS, Annotations, Layer
from engine.layers.definition.overload import overload
from engine.layers.definition.registry import register
from engine.layers.operands.axes import checked_axis, sizes
from engine.layers.operands.bounds import extremes
from engine.layers.operands.precision import INT64, check_ordered, working_dtype
from engine.layers.reduction.reduction import Reduction
from engine.promotion import cast
from engine.tensor import Array, DType, Shape, TensorSpec, format_shape, product


@register("torch.amax", presets={"is_largest": True}, formula="the largest element over dim")
@register("torch.amin", presets={"is_largest": False}, formula="the smallest element over dim")
class Extreme(Reduction):
    """The largest, or the smallest, element over dim.

    Parameters:
        allow_empty: the extreme of no elements is the bound of the dtype (ONNX).
    """

    is_largest: bool
    allow_empty: bool = False

    def _natural_dtype(self, dtype: DType) -> DType:
        check_ordered(dtype)
        return dtype

    def _reduced(self, shape: Shape) -> Shape:
        if not self.allow_empty and any(dim == 0 for axis, dim in enumerate(shape) if axis in self.axes(len(shape))):
            raise ShapeError("an empty tensor has no extreme", found=format_shape(shape))
        return super()._reduced(shape)

    def _reduce(self, input: Array, axes: tuple[int, ...]) -> Any:
        combine: Any = np.max if self.is_largest else np.min
        initial = {"initial": extremes(input.dtype)[not self.is_largest]} if self.allow_empty else {}
        return combine(input, axes, **initial)


@register("torch.argmax", presets={"is_largest": True}, formula="the position of the largest element")
@register("torch.argmin", presets={"is_largest": False}, formula="the position of the smallest element")
class ArgExtreme(Layer):
    """The position of the largest, or the smallest, element along dim, or in the flattened input."""

    is_largest: bool
    dim: int | None = None
    keepdim: bool = False

    def infer(self, input: TensorSpec) -> TensorSpec:
        check_ordered(input.dtype)
        return TensorSpec(self._shape(input.shape), INT64)

    def forward(self, input: Array) -> Array:
        shape = sizes(self._shape(input.shape))
        with np.errstate(all="ignore"):
            wide = cast(input, working_dtype(input.dtype))
            row = wide.reshape(-1) if self.dim is None else np.atleast_1d(wide)
            find: Any = np.argmax if self.is_largest else np.argmin
            found = find(row, 0 if self.dim is None else checked_axis(self.dim, input.ndim))
        return np.asarray(found, INT64).reshape(shape)

    def flops(self, output: TensorSpec, *operands: Any) -> int:
        return operands[0].size or 0

    def _shape(self, shape: Shape) -> Shape:
        if product(shape) == 0 and (self.dim is None or shape[checked_axis(self.dim, len(shape))] == 0):
            raise ShapeError("an empty tensor has no extreme", found=format_shape(shape))
        return Reduction(dim=None if self.dim is None else (self.dim,), keepdim=self.keepdim)._reduced(shape)


@register(
    "torch.max", presets={"is_largest": True}, formula="the largest element of all; or along dim, with its position"
)
@register("torch.min", presets={"is_largest": False},
          formula="the smallest element of all; or along dim, with its position")  # fmt: skip
class ExtremeAndPlace(Layer):
    """The extreme alone or, if the operator has two outputs, with its position."""

    is_largest: bool
    dim: int | None = None
    keepdim: bool = False
    annotations: Annotations = NO_ANNOTATIONS

    def infer(self, input: TensorSpec) -> Any:
        if self.is_alone(input.shape):
            return input
        return self._arranged(self.values.infer(input), lambda: self.places.infer(input))

    def forward(self, input: Array) -> Any:
        if self.is_alone(input.shape):
            return input
        return self._arranged(self.values.forward(input), lambda: self.places.forward(input))

    def flops(self, output: Any, *operands: Any) -> int:
        return operands[0].size or 0

    @property
    def values(self) -> Extreme:
        dims = None if self.dim is None else (self.dim,)
        return Extreme(is_largest=self.is_largest, dim=dims, keepdim=self._keepdim)

    @property
    def places(self) -> ArgExtreme:
        return ArgExtreme(is_largest=self.is_largest, dim=self.dim, keepdim=self.keepdim)

    def _arranged(self, values: Any, places: Callable[[], Any]) -> Any:
        return (values, places()) if len(self.annotations.outputs) == 2 else values

    @property
    def _keepdim(self) -> bool:
        """Return whether dims are kept; for an ONNX reduction over all axes only the annotation shows it."""
        noted = self.annotations.outputs[0] if self.annotations.outputs else None
        return self.keepdim or (self.dim is None and noted is not None and noted.rank > 0)

    def is_alone(self, shape: Shape) -> bool:
        """Return whether this is the element-wise extreme of a single tensor, which ONNX allows."""
        noted = self.annotations.outputs[0] if len(self.annotations.outputs) == 1 else None
        return self.dim is None and noted is not None and noted.rank > 0 and any(size != 1 for size in noted.shape)


overload("aten::max", ("torch.max", "input"), ("torch.maximum", "input other"), ("torch.max", "input dim keepdim"))
overload("aten::min", ("torch.min", "input"), ("torch.minimum", "input other"), ("torch.min", "input dim keepdim"))


@register("aten::aminmax", positional=("input", "dim", "keepdim"))
class AMinMax(Composite):
    """The smallest and the largest element, of all or along dim."""

    dim: int | None = None
    keepdim: bool = False

    def compose(self, call: CallLayer, input: Array) -> tuple[Any, Any]:
        dims = None if self.dim is None else (self.dim,)
        return tuple(call(Extreme(is_largest=each, dim=dims, keepdim=self.keepdim), input) for each in (False, True))
