"""Activations, and other functions of single elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.errors import ShapeError
from engine.layers.definition.layer import NO_ANNOTATIONS, Annotations, Layer
from engine.layers.definition.registry import register
from engine.layers.elementwise.base import Elementwise
from engine.layers.elementwise.ternary import Clamp
from engine.layers.onnx.operands.adapter import as_tensor, present, selected, shape_of
from engine.layers.operands.axes import checked_axis, may_match
from engine.layers.operands.precision import widened
from engine.promotion import broadcast_shapes, cast
from engine.tensor import Array, DType, Number, TensorSpec, format_shape, spec_of

_BOOL: DType = np.dtype(np.bool_)


@register("PRelu", positional=("input", "slope"))
class OnnxPRelu(Layer):
    """x where x >= 0, else slope * x; the slope broadcasts to x."""

    def infer(self, input: TensorSpec, slope: Any) -> TensorSpec:
        shape = broadcast_shapes(input.shape, shape_of(slope))
        if not may_match(shape, input.shape):
            raise ShapeError("slope does not fit", found=format_shape(shape_of(slope)))
        return input

    def forward(self, input: Array, slope: Array | Number) -> Array:
        self.infer(TensorSpec(input.shape, input.dtype), slope)
        x = widened(input) if input.dtype.kind not in "iu" else input
        with np.errstate(all="ignore"):
            bent = x * cast(as_tensor(slope, input.dtype, "slope"), x.dtype)
            return cast(np.where(x < 0, bent, x), input.dtype)


@register("Clip", positional=("input", "min", "max"))
class Clip(Layer):
    """min(max(x, min), max); each bound is optional."""

    def infer(
        self, input: TensorSpec, min: TensorSpec | Number | None = None, max: TensorSpec | Number | None = None
    ) -> TensorSpec:
        if isinstance(min, TensorSpec) and max is None:
            raise ShapeError("the file does not say whether a lone bound is min or max", expected="both of them")
        return input

    def forward(self, input: Array, min: Array | Number | None = None, max: Array | Number | None = None) -> Array:
        self.infer(*(spec_of(each) for each in (input, min, max)))  # type: ignore[arg-type]
        bounds = [None if each is None else cast(each, input.dtype) for each in (min, max)]
        if any(bound is not None and bound.size != 1 for bound in bounds):
            raise ShapeError("a bound is not one number", found=[None if b is None else b.shape for b in bounds])
        if bounds == [None, None]:
            return input
        return Clamp().forward(input, *(None if bound is None else bound.reshape(()) for bound in bounds))


@register("Hardmax")
class Hardmax(Elementwise):
    """1 at the first of the largest elements along an axis, 0 elsewhere."""

    axis: int = -1

    def infer(self, input: TensorSpec, *others: object) -> TensorSpec:
        checked_axis(self.axis, input.rank)
        return input

    def forward(self, input: Array) -> Array:
        row, axis = np.atleast_1d(input), checked_axis(self.axis, input.ndim)
        result = np.zeros(row.shape, row.dtype)
        if row.size:
            first = np.expand_dims(widened(row).argmax(axis), axis)
            np.put_along_axis(result, first, cast(1, row.dtype), axis)
        return result.reshape(input.shape)


@register("Dropout", positional=("input", "ratio", "training_mode"), ignored=("seed", "is_test"))
class OnnxDropout(Layer):
    """Identity with an all-true mask, because models run in inference only."""

    ratio: Any = 0.5
    training_mode: Any = False
    annotations: Annotations = NO_ANNOTATIONS

    def infer(self, input: TensorSpec) -> Any:
        results = (input, TensorSpec(input.shape, _BOOL))
        return selected(results, present(results, self.annotations))

    def forward(self, input: Array) -> Any:
        specs = [TensorSpec(input.shape, dtype) for dtype in (input.dtype, _BOOL)]
        if np.any(np.asarray(self.training_mode, np.bool_)) and np.any(np.asarray(self.ratio) != 0):
            raise ShapeError("dropout at random is for training", found="training_mode = 1", expected="0")
        return selected((input, np.ones(input.shape, np.bool_)), present(specs, self.annotations))
