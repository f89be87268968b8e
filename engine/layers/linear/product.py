"""Products of vectors and tensors other than matrix products: dot, inner, outer, Kronecker, cross, contraction."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.linear.matmul import check_ranks, matmul, matmul_shape, multiply_adds
from engine.layers.operands.axes import checked_axes, checked_axis, may_equal
from engine.layers.operands.precision import working_dtype
from engine.promotion import broadcast_shapes, cast, promote_types
from engine.tensor import Array, Dim, Shape, TensorSpec, format_shape, product


class _Product(Layer):
    """Base of products of two tensors: ``_shape`` gives the result's shape or refuses, ``_multiply`` computes it."""

    def infer(self, input: TensorSpec, other: TensorSpec) -> TensorSpec:
        return TensorSpec(self._shape(input.shape, other.shape), promote_types(input.dtype, other.dtype))

    def forward(self, input: Array, other: Array) -> Array:
        dtype = self.infer(TensorSpec(input.shape, input.dtype), TensorSpec(other.shape, other.dtype)).dtype
        working = working_dtype(dtype)
        with np.errstate(all="ignore"):
            return cast(np.asarray(self._multiply(cast(input, working), cast(other, working))), dtype)

    def _shape(self, a: Shape, b: Shape) -> Shape:
        raise NotImplementedError

    def _multiply(self, a: Array, b: Array) -> Array:
        raise NotImplementedError


@register("aten::dot")
class Dot(_Product):
    """sum(a * b) of two vectors of one length."""

    def flops(self, output: TensorSpec, *operands: object) -> int:
        return multiply_adds(output, operands[0])

    def _shape(self, a: Shape, b: Shape) -> Shape:
        check_ranks(a, b, (1, 1))
        return matmul_shape(a, b)

    def _multiply(self, a: Array, b: Array) -> Array:
        return np.asarray(np.dot(a, b))


@register("aten::vdot")
class Vdot(Dot):
    """sum(conj(a) * b) of two vectors of one length."""

    def _multiply(self, a: Array, b: Array) -> Array:
        return np.asarray(np.dot(a.conj(), b))


@register("aten::linalg_vecdot", positional=("input", "other", "dim"))
class Vecdot(_Product):
    """sum(conj(a) * b) along dim; the operands broadcast."""

    dim: int = -1

    def _shape(self, a: Shape, b: Shape) -> Shape:
        shape = broadcast_shapes(a, b)
        axis = checked_axis(self.dim, len(shape))
        return shape[:axis] + shape[axis + 1 :]

    def _multiply(self, a: Array, b: Array) -> Array:
        terms = np.atleast_1d(a.conj() * b)
        return np.asarray(terms.sum(axis=self.dim, dtype=terms.dtype))


@register("aten::inner")
class Inner(_Product):
    """Sum of products over the last axis of both; plain multiplication where one is 0-dim.

    Shapes:
        (..., K), (***, K)  ->  (..., ***)
    """

    def flops(self, output: TensorSpec, *operands: object) -> int:
        return multiply_adds(output, operands[0])

    def _shape(self, a: Shape, b: Shape) -> Shape:
        if a and b and not may_equal(a[-1], b[-1]):
            found = f"{format_shape(a)} and {format_shape(b)}"
            raise ShapeError("last sizes differ", found=found, expected="[..., K] and [..., K]")
        return (*a[:-1], *b[:-1]) if a and b else (*a, *b)

    def _multiply(self, a: Array, b: Array) -> Array:
        return np.tensordot(a, b, axes=(-1, -1)) if a.ndim and b.ndim else a * b


@register("aten::outer", "aten::ger")
class Outer(_Product):
    """a[m] * b[n] for two vectors."""

    def _shape(self, a: Shape, b: Shape) -> Shape:
        check_ranks(a, b, (1, 1))
        return (*a, *b)

    def _multiply(self, a: Array, b: Array) -> Array:
        return np.multiply.outer(a, b)


@register("aten::kron")
class Kron(_Product):
    """Every element of a times the whole of b; the shorter shape is padded with leading ones."""

    def _shape(self, a: Shape, b: Shape) -> Shape:
        rank = max(len(a), len(b))
        pairs = zip(_filled(a, rank), _filled(b, rank), strict=True)
        return tuple(product(pair) for pair in pairs)

    def _multiply(self, a: Array, b: Array) -> Array:
        rank = max(a.ndim, b.ndim)
        # Axes alternate: one of a, one of b.
        sizes_a, sizes_b = _filled(a.shape, rank), _filled(b.shape, rank)
        spread_a = a.reshape([size for m in sizes_a for size in (m or 0, 1)])
        spread_b = b.reshape([size for n in sizes_b for size in (1, n or 0)])
        return np.asarray(spread_a * spread_b).reshape(
            [(m or 0) * (n or 0) for m, n in zip(sizes_a, sizes_b, strict=True)]
        )


@register("aten::tensordot", positional=("input", "other", "dims_self", "dims_other"))
class Tensordot(_Product):
    """Sum of products over pairs of axes, one of each operand."""

    dims_self: tuple[int, ...]
    dims_other: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.dims_self) != len(self.dims_other):
            found = f"{list(self.dims_self)} and {list(self.dims_other)}"
            raise ParameterError("contracted axes do not pair up", found=found)

    def flops(self, output: TensorSpec, *operands: object) -> int:
        left = operands[0]
        summed = [left.shape[dim] for dim in self.dims_self] if isinstance(left, TensorSpec) else []
        return 2 * (output.size or 0) * (product(summed) or 0)

    def _shape(self, a: Shape, b: Shape) -> Shape:
        axes_a, axes_b = self._axes(a, b)
        for m, n in zip(axes_a, axes_b, strict=True):
            if not may_equal(a[m], b[n]):
                found = f"{format_shape(a)} over {list(axes_a)}, {format_shape(b)} over {list(axes_b)}"
                raise ShapeError("contracted sizes differ", found=found)
        return (*_without(a, axes_a), *_without(b, axes_b))

    def _multiply(self, a: Array, b: Array) -> Array:
        return np.tensordot(a, b, axes=self._axes(a.shape, b.shape))

    def _axes(self, a: Shape, b: Shape) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return checked_axes(self.dims_self, len(a)), checked_axes(self.dims_other, len(b))


@register("torch.cross")
@register("aten::linalg_cross", positional=("input", "other", "dim"))
class Cross(_Product):
    """(a1*b2 - a2*b1, a2*b0 - a0*b2, a0*b1 - a1*b0) along an axis of size 3; the operands broadcast.

    Parameters:
        dim: None stands for the first axis of size 3.
    """

    dim: int | None = None

    def infer(self, input: TensorSpec, other: TensorSpec) -> TensorSpec:
        spec = super().infer(input, other)
        if spec.dtype == np.bool_:
            raise ShapeError("a cross product needs numbers", found="bool")
        return spec

    def _shape(self, a: Shape, b: Shape) -> Shape:
        shape = broadcast_shapes(a, b)
        if not shape:
            raise ShapeError("a cross product needs vectors", found="0-dim tensors")
        if self.dim is None and not any(size is None or size == 3 for size in shape):
            raise ShapeError("a cross product needs an axis of size 3", found=format_shape(shape))
        if self.dim is not None and not may_equal(shape[checked_axis(self.dim, len(shape))], 3):
            raise ShapeError("a cross product needs 3 components", found=shape[self.dim])
        return shape

    def _multiply(self, a: Array, b: Array) -> Array:
        a, b = np.broadcast_arrays(a, b)
        axis = a.shape.index(3) if self.dim is None else self.dim
        a, b = np.moveaxis(a, axis, 0), np.moveaxis(b, axis, 0)
        after, before = [1, 2, 0], [2, 0, 1]
        return np.moveaxis(a[after] * b[before] - a[before] * b[after], 0, axis)


@register("aten::linalg_multi_dot", "aten::chain_matmul")
class ChainMatmul(Layer):
    """Matrix product of a list of matrices; the first and last may be vectors."""

    def infer(self, tensors: Sequence[TensorSpec]) -> TensorSpec:
        shape = reduce(matmul_shape, [each.shape for each in tensors])
        return TensorSpec(shape, reduce(promote_types, [each.dtype for each in tensors]))

    def forward(self, tensors: Sequence[Array]) -> Array:
        reduce(matmul_shape, [each.shape for each in tensors])
        dtype = reduce(promote_types, [each.dtype for each in tensors])
        with np.errstate(all="ignore"):
            return cast(reduce(matmul, [cast(each, working_dtype(dtype)) for each in tensors]), dtype)


def _filled(shape: Shape, rank: int) -> Shape:
    return (*[1] * (rank - len(shape)), *shape)


def _without(shape: Shape, axes: Sequence[int]) -> tuple[Dim, ...]:
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)
