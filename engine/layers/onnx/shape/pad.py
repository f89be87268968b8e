"""Padding of any axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np

from engine.errors import ShapeError
from engine.layers.convolution.pad import extend, padded_shape
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.onnx.operands.adapter import as_tensor
from engine.layers.onnx.operands.constants import needed, whole_numbers
from engine.layers.operands.axes import checked_axes
from engine.layers.operands.spatial import tensor
from engine.tensor import Array, Number, TensorSpec

_MODES: Final = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


@register("Pad", positional=("input", "pads", "value", "axes"))
class OnnxPad(Layer):
    """Padding or cropping of the input.

    Parameters:
        pads: all starts, then all ends, of the given axes or of all; negative ones crop.
        mode: constant, reflect, edge or wrap.
    Dtypes:
        any.
    """

    mode: Literal["constant", "reflect", "edge", "wrap"] = "constant"

    def infer(self, input: TensorSpec, pads: Any, value: Any = None, axes: Any = None) -> TensorSpec:
        spec = tensor(input)
        value, axes = _in_place(value, axes)
        amounts, named = whole_numbers(pads, "pads"), axes if axes is None else whole_numbers(axes, "axes")
        if amounts is None or (axes is not None and named is None):
            return TensorSpec((None,) * spec.rank, spec.dtype)
        return TensorSpec(padded_shape(spec.shape, self._pairs(amounts, named, spec.rank), self._way), spec.dtype)

    def forward(self, input: Array, pads: Any, value: Array | Number | None = None, axes: Array | None = None) -> Array:
        value, axes = _in_place(value, axes)
        named = None if axes is None else whole_numbers(axes, "axes")
        pairs = self._pairs(needed(whole_numbers(pads, "pads"), "pads"), named, input.ndim)
        padded_shape(input.shape, pairs, self._way)
        filler = as_tensor(0 if value is None else value, input.dtype, "value")
        if filler.size != 1:
            raise ShapeError("value is not one number", found=list(filler.shape))
        if self.mode == "wrap":
            return _wrapped(input, pairs)
        return extend(input, pairs, self._way, filler.reshape(()))

    @property
    def _way(self) -> str:
        return "constant" if self.mode == "wrap" else _MODES[self.mode]

    def _pairs(self, amounts: Sequence[int], named: Sequence[int] | None, rank: int) -> list[tuple[int, int]]:
        axes = tuple(range(rank)) if named is None else checked_axes(named, rank)
        if len(amounts) != 2 * len(axes):
            raise ShapeError("pads do not fit the axes", found=list(amounts), expected=f"{2 * len(axes)} numbers")
        pairs = [(0, 0)] * rank
        for axis, before, after in zip(axes, amounts[: len(axes)], amounts[len(axes) :], strict=True):
            pairs[axis] = (before, after)
        return pairs


def _in_place(value: Any, axes: Any) -> tuple[Any, Any]:
    """Return value and axes; if the file omits the value, a vector in its place is the axes."""
    is_vector = isinstance(value, (np.ndarray, TensorSpec)) and len(value.shape) == 1 and value.dtype.kind == "i"
    return (None, value) if axes is None and is_vector else (value, axes)


def _wrapped(x: Array, pairs: Sequence[tuple[int, int]]) -> Array:
    for axis, (before, after) in enumerate(pairs):
        size = x.shape[axis]
        if (before, after) != (0, 0):
            if size == 0:
                raise ShapeError("there is nothing to wrap around", found=list(x.shape))
            x = x.take(np.arange(-before, size + after) % size, axis)
    return x
