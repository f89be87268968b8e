"""Operators that write values under a mask, and masks of fixed form."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.errors import ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.indexing.selection import NonZeroByAxis, positions_spec
from engine.layers.operands.axes import may_match
from engine.layers.operands.fitting import check_category, check_mask, check_single
from engine.layers.shape.shape import Rearrangement
from engine.promotion import broadcast_shapes, cast, result_type
from engine.tensor import Array, Number, TensorSpec, format_shape


@register("Tensor.masked_fill")
class MaskedFill(Layer):
    """value where mask, else input; the value is converted to the input's dtype, and input and mask are broadcast."""

    def infer(self, input: TensorSpec, mask: TensorSpec, value: TensorSpec | Number) -> TensorSpec:
        check_single(value)
        check_mask(mask.dtype)
        return TensorSpec(broadcast_shapes(input.shape, mask.shape), input.dtype)

    def forward(self, input: Array, mask: Array, value: Array | Number) -> Array:
        return np.where(mask, cast(value, input.dtype), input)


@register("aten::masked_scatter")
class MaskedScatter(Layer):
    """The elements of source, in order, at the positions under the mask."""

    def infer(self, input: TensorSpec, mask: TensorSpec, source: TensorSpec) -> TensorSpec:
        check_mask(mask.dtype)
        check_category(source.dtype, input.dtype)
        return TensorSpec(broadcast_shapes(input.shape, mask.shape), input.dtype)

    def forward(self, input: Array, mask: Array, source: Array) -> Array:
        table, hits = np.broadcast_arrays(input, mask.astype(np.bool_))
        count = int(np.count_nonzero(hits))
        if source.size < count:
            raise ShapeError("source has too few elements", found=source.size, expected=f"at least {count}")
        result = table.copy()
        result[hits] = cast(source.reshape(-1)[:count], input.dtype)
        return result


@register("torch.where")
class Where(Layer):
    """input where condition, else other, in their common dtype; without them the positions where it holds."""

    takes_sizes = True

    def infer(
        self,
        condition: TensorSpec,
        input: TensorSpec | Number | None = None,
        other: TensorSpec | Number | None = None,
    ) -> Any:
        if input is None or other is None:
            return positions_spec(condition)
        check_mask(condition.dtype)
        shapes = [value.shape for value in (input, other) if isinstance(value, TensorSpec)]
        return TensorSpec(broadcast_shapes(condition.shape, *shapes), result_type(input, other))

    def forward(
        self, condition: Array, input: Array | Number | None = None, other: Array | Number | None = None
    ) -> Array | list[Array]:
        if input is None or other is None:
            return NonZeroByAxis().forward(condition)
        dtype = result_type(input, other)
        return np.where(condition, cast(input, dtype), cast(other, dtype))


@register("Tensor.fill")
class Fill(Rearrangement):
    """A tensor like input, full of one value."""

    def infer(self, input: TensorSpec, value: TensorSpec | Number) -> TensorSpec:
        check_single(value)
        return input

    def forward(self, input: Array, value: Array | Number) -> Array:
        return np.broadcast_to(cast(value, input.dtype), input.shape)


@register("Tensor.copy", renamed={"self": "input"})
class Copy(Rearrangement):
    """src, broadcast and converted, in place of input."""

    non_blocking: bool = False

    def infer(self, input: TensorSpec, src: TensorSpec) -> TensorSpec:
        if not may_match(broadcast_shapes(input.shape, src.shape), input.shape):
            raise ShapeError("source does not fit", found=format_shape(src.shape), expected=format_shape(input.shape))
        return input

    def forward(self, input: Array, src: Array) -> Array:
        return np.broadcast_to(cast(src, input.dtype), input.shape)


@register("torch.tril", presets={"is_upper": False}, formula="input on the diagonal and below it, else 0")
@register("torch.triu", presets={"is_upper": True}, formula="input on the diagonal and above it, else 0")
class Triangle(Rearrangement):
    """One triangle of each matrix, the other set to zero."""

    is_upper: bool
    diagonal: int = 0

    def infer(self, input: TensorSpec) -> TensorSpec:
        if input.rank < 2:
            raise ShapeError("a matrix is needed", found=format_shape(input.shape), expected="at least 2 dimensions")
        return input

    def forward(self, input: Array) -> Array:
        rows, columns = input.shape[-2:]
        lower, nothing = lower_triangle(rows, columns, self.diagonal - self.is_upper), np.zeros((), input.dtype)
        return np.where(lower, nothing, input) if self.is_upper else np.where(lower, input, nothing)


def lower_triangle(rows: int, columns: int, diagonal: int) -> Array:
    """Return a mask of the elements on a diagonal and below it."""
    # numpy computes with C integers, so a diagonal beyond the matrix is clipped.
    return np.tri(rows, columns, max(min(diagonal, columns), -rows - 1), np.bool_)
