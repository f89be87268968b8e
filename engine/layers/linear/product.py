"""Products of vectors and tensors other than matrix products: dot, inner, outer, Kronecker, cross, contraction."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from string import ascii_letters
from typing import Any

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.creation.container import formula
from engine.layers.definition.composite import CallLayer, Composite, UnknownSizeError
from engine.layers.definition.layer import Annotations
from engine.layers.definition.registry import register
from engine.layers.elementwise.arithmetic import Add
from engine.layers.elementwise.complex import Conjugate
from engine.layers.linear.einsum import Einsum
from engine.layers.linear.matmul import Matmul, check_ranks
from engine.layers.operands.axes import checked_axes, checked_axis, may_equal, may_match
from engine.layers.reduction.reduction import Sum
from engine.layers.shape.expand import ExpandAs
from engine.layers.shape.join import Cat
from engine.layers.shape.shape import Flatten, Unsqueeze
from engine.layers.shape.split import Chunk
from engine.promotion import broadcast_shapes, promote_types
from engine.tensor import Array, Shape, TensorSpec, format_shape


def _multiplied(call: CallLayer, input: Array, other: Array) -> Any:
    return formula(call, "mul(@0,@1)", input, other)


def _conjugate(call: CallLayer, input: Array) -> Any:
    return call(Conjugate(), input) if input.dtype.kind == "c" else input


@register("aten::dot")
class Dot(Composite):
    """sum(a * b) of two vectors of one length."""

    def compose(self, call: CallLayer, input: Array, other: Array) -> Any:
        check_ranks(input.shape, other.shape, (1, 1))
        return call(Matmul(), input, other)


@register("aten::vdot")
class Vdot(Composite):
    """sum(conj(a) * b) of two vectors of one length."""

    def compose(self, call: CallLayer, input: Array, other: Array) -> Any:
        return call(Dot(), _conjugate(call, input), other)


@register("aten::linalg_vecdot", positional=("input", "other", "dim"))
class Vecdot(Composite):
    """sum(conj(a) * b) along dim; the operands broadcast."""

    dim: int = -1

    def compose(self, call: CallLayer, input: Array, other: Array) -> Any:
        dtype = promote_types(input.dtype, other.dtype)
        return call(Sum(dim=(self.dim,), dtype=dtype), _multiplied(call, _conjugate(call, input), other))


@register("aten::inner")
class Inner(Composite):
    """Sum of products over the last axis of both; plain multiplication where one is 0-dim.

    Shapes:
        (..., K), (***, K)  ->  (..., ***)
    """

    def compose(self, call: CallLayer, input: Array, other: Array) -> Any:
        if not input.shape or not other.shape:
            return _multiplied(call, input, other)
        if not may_equal(input.shape[-1], other.shape[-1]):
            found = f"{format_shape(input.shape)} and {format_shape(other.shape)}"
            raise ShapeError("last sizes differ", found=found, expected="[..., K] and [..., K]")
        return call(Tensordot(dims_self=(-1,), dims_other=(-1,)), input, other)


@register("aten::outer")
class Outer(Composite):
    """a[m] * b[n] for two vectors."""

    def compose(self, call: CallLayer, input: Array, other: Array) -> Any:
        check_ranks(input.shape, other.shape, (1, 1))
        return _multiplied(call, call(Unsqueeze(dim=(1,)), input), other)


@register("aten::kron")
class Kron(Composite):
    """Every element of a times the whole of b; the shorter shape is padded with leading ones."""

    def compose(self, call: CallLayer, input: Array, other: Array) -> Any:
        rank = max(len(input.shape), len(other.shape))
        # Axes alternate: one of a, one of b.
        spread = [self._spread(call, each, rank, place) for place, each in enumerate((input, other))]
        result = _multiplied(call, *spread)
        for axis in range(rank):
            result = call(Flatten(start_dim=axis, end_dim=axis + 1), result)
        return result

    def _spread(self, call: CallLayer, input: Array, rank: int, place: int) -> Any:
        missing = 2 * (rank - len(input.shape))
        return call(Unsqueeze(dim=tuple(k for k in range(2 * rank) if k % 2 != place or k < missing)), input)


@register("aten::tensordot", positional=("input", "other", "dims_self", "dims_other"))
class Tensordot(Composite):
    """Sum of products over pairs of axes, one of each operand."""

    dims_self: tuple[int, ...]
    dims_other: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.dims_self) != len(self.dims_other):
            found = f"{list(self.dims_self)} and {list(self.dims_other)}"
            raise ParameterError("contracted axes do not pair up", found=found)

    def compose(self, call: CallLayer, input: Array, other: Array) -> Any:
        a, b = input.shape, other.shape
        axes_a, axes_b = checked_axes(self.dims_self, len(a)), checked_axes(self.dims_other, len(b))
        if not all(may_equal(a[m], b[n]) for m, n in zip(axes_a, axes_b, strict=True)):
            found = f"{format_shape(a)} over {list(axes_a)}, {format_shape(b)} over {list(axes_b)}"
            raise ShapeError("contracted sizes differ", found=found)
        first, second = list(ascii_letters[: len(a)]), list(ascii_letters[len(a) : len(a) + len(b)])
        for m, n in zip(axes_a, axes_b, strict=True):
            second[n] = first[m]
        rest = "".join(each for each in (*first, *second) if (each in first) != (each in second))
        return call(Einsum(equation=f"{''.join(first)},{''.join(second)}->{rest}"), input, other)


@register("torch.cross")
class Cross(Composite):
    """(a1*b2 - a2*b1, a2*b0 - a0*b2, a0*b1 - a1*b0) along an axis of size 3; the operands broadcast.

    Parameters:
        dim: None stands for the first axis of size 3.
    """

    dim: int | None = None

    def infer(self, input: TensorSpec, other: TensorSpec) -> TensorSpec:
        shape, dtype = broadcast_shapes(input.shape, other.shape), promote_types(input.dtype, other.dtype)
        if dtype == np.bool_:
            raise ShapeError("a cross product needs numbers", found="bool")
        if not shape:
            raise ShapeError("a cross product needs vectors", found="0-dim tensors")
        if self.dim is None and not any(may_equal(dim, 3) for dim in shape):
            raise ShapeError("a cross product needs an axis of size 3", found=format_shape(shape))
        if self.dim is not None and not may_equal(shape[checked_axis(self.dim, len(shape))], 3):
            raise ShapeError("a cross product needs 3 components", found=shape[self.dim])
        return TensorSpec(shape, dtype)

    def compose(self, call: CallLayer, input: Array, other: Array) -> Any:
        shape = broadcast_shapes(input.shape, other.shape)
        axis = self._axis(shape) if self.dim is None else self.dim
        both = _multiplied(call, input, other)
        split = Chunk(chunks=3, dim=axis, annotations=Annotations(outputs=(None,) * 3))
        a, b = (call(split, call(ExpandAs(), each, both)) for each in (input, other))
        parts = [
            formula(call, "sub(mul(@0,@1),mul(@2,@3))", a[after], b[before], a[before], b[after])
            for after, before in ((1, 2), (2, 0), (0, 1))
        ]
        return call(Cat(dim=axis), *parts)

    def _axis(self, shape: Shape) -> int:
        if 3 not in shape or None in shape[: shape.index(3)]:
            raise UnknownSizeError("the first axis of size 3")
        return shape.index(3)


@register("aten::linalg_multi_dot")
class ChainMatmul(Composite):
    """Matrix product of a list of matrices; the first and last may be vectors."""

    def compose(self, call: CallLayer, tensors: Sequence[Array]) -> Any:
        return reduce(partial(call, Matmul()), tensors)


class _AddProduct(Composite):
    """Base of beta * input + alpha * product(first, second); with beta = 0 the input is ignored, even NaN."""

    beta: int | float = 1
    alpha: int | float = 1

    def _sum(self, call: CallLayer, input: Array, product: Array) -> Any:
        shape = product.shape
        if not may_match(broadcast_shapes(input.shape, shape), shape):
            found = f"{format_shape(input.shape)} and {format_shape(shape)}"
            raise ShapeError("input does not broadcast to the product", found=found)
        result = product if self.alpha == 1 else formula(call, f"mul(@0,{self.alpha})", product)
        return call(Add(alpha=self.beta), result, input) if self.beta else result


@register("aten::addbmm", positional=("input", "first", "second", "beta", "alpha"))
class AddBatchSum(_AddProduct):
    """beta * input + alpha * sum over the batch of first[b] @ second[b].

    Shapes:
        first (B, M, K), second (B, K, N), input broadcast to  ->  (M, N)
    """

    def compose(self, call: CallLayer, input: Array, first: Array, second: Array) -> Any:
        check_ranks(first.shape, second.shape, (3, 3))
        if not may_equal(first.shape[0], second.shape[0]):
            found = f"{format_shape(first.shape)} by {format_shape(second.shape)}"
            raise ShapeError("batches differ", found=found)
        return self._sum(call, input, call(Tensordot(dims_self=(0, 2), dims_other=(0, 1)), first, second))


@register("aten::addr", positional=("input", "first", "second", "beta", "alpha"))
class AddOuter(_AddProduct):
    """beta * input + alpha * first[m] * second[n].

    Shapes:
        first (M,), second (N,), input broadcast to  ->  (M, N)
    """

    def compose(self, call: CallLayer, input: Array, first: Array, second: Array) -> Any:
        return self._sum(call, input, call(Outer(), first, second))
