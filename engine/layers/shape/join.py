"""Operators that put tensors together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, ClassVar, Literal

import numpy as np

from engine.errors import ShapeError
from engine.ir.dims import largest
from engine.layers.definition.registry import register
from engine.layers.operands.axes import checked_axis, may_match, replaced
from engine.layers.shape.shape import AtLeast, Rearrangement, Unsqueeze
from engine.limits import check_size
from engine.promotion import cast, promote_types
from engine.tensor import (
    UNKNOWN,
    Array,
    Dim,
    DType,
    Shape,
    TensorSpec,
    format_shape,
    product,
    scalar_tensor,
    spec_of,
)


class _Join(Rearrangement):
    """Base of layers that join any number of tensors, given one by one or as one list; numbers are 0-dim tensors."""

    takes_unknown = True
    number_shape: ClassVar[tuple[int, ...]] = ()

    def infer(self, *tensors: Any) -> Any:
        items = [_announced(item, self.number_shape) for item in _items(tensors)]
        if not all(isinstance(item, TensorSpec) for item in items):
            return UNKNOWN
        return self._joined_spec(items)

    def forward(self, *tensors: Any) -> Array:
        items = [_as_tensor(item, self.number_shape) for item in _items(tensors)]
        spec = self._joined_spec([spec_of(item) for item in items])  # type: ignore[misc]
        return self._join([cast(item, spec.dtype) for item in items])

    def _joined_spec(self, tensors: Sequence[TensorSpec]) -> TensorSpec:
        raise NotImplementedError

    def _join(self, tensors: Sequence[Array]) -> Array:
        raise NotImplementedError


def _items(tensors: Sequence[Any]) -> Sequence[Any]:
    items = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
    if not items:
        raise ShapeError("no tensors to join", found="no tensor", expected="at least one")
    return items


def _as_tensor(item: Any, shape: tuple[int, ...]) -> Array:
    tensor: Array = scalar_tensor(item).reshape(shape) if isinstance(item, (int, float, complex)) else item
    if not isinstance(tensor, (np.ndarray, TensorSpec)) and tensor is not UNKNOWN:
        raise ShapeError("only tensors can be joined", found=type(item).__name__, expected="tensors")
    return tensor


def _announced(item: Any, shape: tuple[int, ...]) -> Any:
    return spec_of(_as_tensor(item, shape))


def _common_dtype(tensors: Sequence[TensorSpec]) -> DType:
    return reduce(promote_types, [tensor.dtype for tensor in tensors])


@register("torch.cat")
class Cat(_Join):
    """Tensors concatenated along dim, in their common dtype.

    Shapes:
        equal except for dim; tensors of shape (0,) are ignored whatever the other shapes. Numbers count as vectors of
        one element, as in sizes of graphs from ONNX.
    """

    number_shape = (1,)

    dim: int = 0

    def _joined_spec(self, tensors: Sequence[TensorSpec]) -> TensorSpec:
        shapes = [tensor.shape for tensor in tensors if tensor.shape != (0,)] or [(0,)]
        if () in shapes:
            raise ShapeError("0-dim tensors cannot be joined", found="[]", expected="at least one dimension")
        axis = checked_axis(self.dim, len(shapes[0]))
        shape = reduce(lambda a, b: _merged(a, b, axis), shapes)
        lengths = [each[axis] for each in shapes]
        total = None if None in lengths else sum(length for length in lengths if length is not None)
        return TensorSpec(replaced(shape, axis, total), _common_dtype(tensors))

    def _join(self, tensors: Sequence[Array]) -> Array:
        kept = [tensor for tensor in tensors if tensor.shape != (0,)] or tensors[:1]
        return np.concatenate(kept, checked_axis(self.dim, kept[0].ndim))


def _merged(a: Shape, b: Shape, axis: int) -> Shape:
    """Return the dimensions known from two shapes that are joined along an axis."""
    if len(a) != len(b) or not may_match(replaced(a, axis), replaced(b, axis)):
        raise ShapeError("shapes cannot be joined", found=f"{format_shape(a)} and {format_shape(b)}",
                         expected=f"equal dimensions except dim {axis}")  # fmt: skip
    return tuple(n if m is None else m for m, n in zip(a, b, strict=True))


@register("torch.stack")
class Stack(_Join):
    """Tensors of one shape along a new axis dim."""

    dim: int = 0

    def _joined_spec(self, tensors: Sequence[TensorSpec]) -> TensorSpec:
        shape = reduce(_common_shape, [tensor.shape for tensor in tensors])
        axis = checked_axis(self.dim, len(shape) + 1)
        return TensorSpec((*shape[:axis], len(tensors), *shape[axis:]), _common_dtype(tensors))

    def _join(self, tensors: Sequence[Array]) -> Array:
        return np.stack(tensors, checked_axis(self.dim, tensors[0].ndim + 1))


def _common_shape(a: Shape, b: Shape) -> Shape:
    if not may_match(a, b):
        raise ShapeError("only equal shapes can be stacked", found=f"{format_shape(a)} and {format_shape(b)}")
    return tuple(n if m is None else m for m, n in zip(a, b, strict=True))


@register("aten::dstack", presets={"rank": 3, "dim": 2})
class StackedRows(_Join):
    """Tensors of at least so many dimensions joined along one; hstack joins vectors along their only axis."""

    rank: int
    dim: int

    def _joined_spec(self, tensors: Sequence[TensorSpec]) -> TensorSpec:
        raised = [AtLeast(rank=self.rank).infer(tensor) for tensor in tensors]
        return self._cat(raised[0].rank)._joined_spec(raised)

    def _join(self, tensors: Sequence[Array]) -> Array:
        raised = [AtLeast(rank=self.rank).forward(tensor) for tensor in tensors]
        return self._cat(raised[0].ndim)._join(raised)

    def _cat(self, rank: int) -> Cat:
        return Cat(dim=min(self.dim, rank - 1))


@register("aten::column_stack")
class ColumnStack(_Join):
    """Vectors as columns, and matrices, joined horizontally."""

    def _joined_spec(self, tensors: Sequence[TensorSpec]) -> TensorSpec:
        return Cat(dim=1)._joined_spec([_as_columns(tensor.rank).infer(tensor) for tensor in tensors])

    def _join(self, tensors: Sequence[Array]) -> Array:
        return Cat(dim=1)._join([_as_columns(tensor.ndim).forward(tensor) for tensor in tensors])


def _as_columns(rank: int) -> Unsqueeze:
    return Unsqueeze(dim=tuple(range(rank, max(rank, 2))) if rank else (0, 1))


@register("aten::cartesian_prod")
class CartesianProduct(_Join):
    """Every combination of one element from each vector, one a row; a single vector is returned unchanged."""

    def _joined_spec(self, tensors: Sequence[TensorSpec]) -> TensorSpec:
        if any(tensor.rank != 1 for tensor in tensors):
            raise ShapeError("only vectors can be combined", found=format_shape(tensors[0].shape), expected="[n]")
        rows: Dim = product(tensor.shape[0] for tensor in tensors)
        return TensorSpec((rows, len(tensors)) if len(tensors) > 1 else (rows,), _common_dtype(tensors))

    def _join(self, tensors: Sequence[Array]) -> Array:
        if len(tensors) == 1:
            return tensors[0]
        return np.stack([grid.reshape(-1) for grid in np.meshgrid(*tensors, indexing="ij")], axis=1)


@register("aten::block_diag")
class BlockDiagonal(_Join):
    """Matrices along the diagonal of a zero matrix; vectors count as rows."""

    def _joined_spec(self, tensors: Sequence[TensorSpec]) -> TensorSpec:
        shapes = [_matrix(tensor.shape) for tensor in tensors]
        heights, widths = zip(*shapes, strict=True)
        return TensorSpec((_sum(heights), _sum(widths)), _common_dtype(tensors))

    def _join(self, tensors: Sequence[Array]) -> Array:
        blocks = [tensor.reshape(_matrix(tensor.shape)) for tensor in tensors]
        result = np.zeros(np.sum([block.shape for block in blocks], axis=0), blocks[0].dtype)
        row = column = 0
        for block in blocks:
            result[row : row + block.shape[0], column : column + block.shape[1]] = block
            row, column = row + block.shape[0], column + block.shape[1]
        return result


def _matrix(shape: Shape) -> Any:
    if len(shape) > 2:
        raise ShapeError("only matrices can be blocks", found=format_shape(shape), expected="at most 2 dimensions")
    return (1,) * (2 - len(shape)) + shape


def _sum(dims: Sequence[Dim]) -> Dim:
    return None if None in dims else sum(dim for dim in dims if dim is not None)


@register("aten::pad_sequence", positional=("sequences", "batch_first", "padding_value", "padding_side"))
class PadSequence(Rearrangement):
    """Sequences (l, ...) of any lengths as one tensor (L, n, ...), or (n, L, ...) with the batch first.

    Shorter sequences are filled with ``padding_value``, after their end or before their beginning.
    """

    batch_first: bool = False
    padding_value: float = 0.0
    padding_side: Literal["left", "right"] | None = "right"

    def infer(self, sequences: Any) -> Any:
        specs = _items([sequences])
        return self._padded_spec(specs) if all(isinstance(each, TensorSpec) for each in specs) else UNKNOWN

    def forward(self, sequences: Sequence[Array]) -> Array:
        longest, first = max(map(len, sequences)), sequences[0]
        shape = len(sequences), longest, *first.shape[1:]
        check_size(shape, first.dtype)
        result = np.full(shape, self.padding_value, first.dtype)
        for row, each in zip(result, sequences, strict=True):
            begin = longest - len(each) if self.padding_side == "left" else 0
            row[begin : begin + len(each)] = each
        return result if self.batch_first else np.moveaxis(result, 0, 1)

    def _padded_spec(self, tensors: Sequence[TensorSpec]) -> TensorSpec:
        first = tensors[0]
        if any(not each.rank or each.rank != first.rank or each.dtype != first.dtype for each in tensors):
            found = ", ".join(map(str, tensors[:3]))
            raise ShapeError("only sequences of one rank and dtype can be padded", found=found)
        inner = reduce(_common_shape, [each.shape[1:] for each in tensors])
        lengths = [each.shape[0] for each in tensors]
        longest = None if None in lengths else largest(*(length for length in lengths if length is not None))
        outer = (len(tensors), longest) if self.batch_first else (longest, len(tensors))
        return TensorSpec((*outer, *inner), first.dtype)
