"""Python numbers as values of a graph: sizes, and tensors of one element as numbers."""

from __future__ import annotations

import cmath
from typing import Any, Literal

import numpy as np

from engine.errors import ShapeError
from engine.ir.ratios import truncate
from engine.ir.sizes import has_sizes
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.operands.axes import checked_axis
from engine.tensor import UNKNOWN, Array, Dim, Shape, TensorSpec, format_shape, product


class _Number(Layer):
    """Base of layers that compute a number, not a tensor."""

    does_arithmetic = False
    gives_numbers = True
    takes_sizes = True


@register("Tensor.size")
class Size(_Number):
    """The length of one dimension, an int; without dim all of them, a list."""

    dim: int | None = None

    def infer(self, input: TensorSpec) -> Any:
        lengths = [UNKNOWN if length is None else length for length in input.shape]
        return lengths if self.dim is None else self._one(lengths)

    def forward(self, input: Array) -> Any:
        return list(input.shape) if self.dim is None else self._one(input.shape)

    def _one(self, lengths: Any) -> Any:
        axis = checked_axis(self.dim or 0, len(lengths))
        if not lengths:
            raise ShapeError("a 0-dim tensor has no dimensions", found=f"dim {self.dim}")
        return lengths[axis]


@register("aten::numel")
class NumEl(_Number):
    """The number of elements, an int."""

    def infer(self, input: TensorSpec) -> Any:
        count = product(input.shape)
        return UNKNOWN if count is None else count

    def forward(self, input: Array) -> int:
        return input.size


@register("aten::dim")
class Rank(_Number):
    """The number of dimensions, an int."""

    def infer(self, input: TensorSpec) -> int:
        return input.rank

    def forward(self, input: Array) -> int:
        return input.ndim


@register("aten::len")
class Length(_Number):
    """The number of items of a list, or of slices of a tensor."""

    def infer(self, items: Any) -> Any:
        if not isinstance(items, TensorSpec):
            return self.forward(items)
        length = self._of(items.shape)
        return UNKNOWN if length is None else length

    def forward(self, items: Any) -> Any:
        return self._of(items.shape) if isinstance(items, np.ndarray) else self._of((len(items),))

    def _of(self, shape: Shape) -> Dim:
        if not shape:
            raise ShapeError("a 0-dim tensor has no slices to count")
        return shape[0]


@register("aten::__getitem__")
class Item(_Number):
    """One item of a list; of a tensor one of its sizes, where the converter drops the operator in ``x.shape[0]``."""

    def infer(self, items: Any, index: Any) -> Any:
        return self.forward(items, index)

    def forward(self, items: Any, index: Any) -> Any:
        if isinstance(items, (np.ndarray, TensorSpec)):
            items = [UNKNOWN if length is None else length for length in items.shape]
        if not isinstance(items, (list, tuple)) or not isinstance(index, int) or not -len(items) <= index < len(items):
            raise ShapeError("the index of an item is out of range", found=f"item {index} of {type(items).__name__}")
        return items[index]


class Scalar(_Number):
    """A number, or the one element of a tensor, as a number, which sizes are computed with; perhaps converted."""

    kind: Literal["as it is", "int", "float", "bool"]

    def infer(self, value: Any) -> Any:
        return UNKNOWN if isinstance(value, TensorSpec) else self.forward(value)

    def forward(self, value: Any) -> Any:
        number = single(value)
        if self.kind != "int":
            return number if self.kind == "as it is" else {"float": float, "bool": bool}[self.kind](number)
        if has_sizes(number):
            return truncate(number)
        if not cmath.isfinite(number):
            raise ShapeError("not an integer", found=number)
        return int(number)


register("aten::ScalarImplicit", presets={"kind": "as it is"}, formula="the number")(Scalar)
register("aten::Int", presets={"kind": "int"}, formula="the number truncated to an int")(Scalar)
register("aten::Float", presets={"kind": "float"}, formula="the number as a float")(Scalar)
register("aten::Bool", presets={"kind": "bool"}, formula="True if the number is not zero")(Scalar)


def single(value: Any) -> Any:
    """Return the one element of a tensor as a Python number; a number is returned itself.

    Raises:
        ShapeError: for a tensor of several elements, and for other values.
    """
    if isinstance(value, np.ndarray):
        if value.size != 1:
            raise ShapeError("only a tensor with one element converts to a number", found=format_shape(value.shape))
        value = value.item()
    if not isinstance(value, (bool, int, float, complex)):
        raise ShapeError("not a number", found=repr(value)[:40])
    return value
