"""Products of computed matrices, in batches; a product with weights is a linear layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from engine.compiler.kernels.expr import RESULT, Expr, Operand, apply
from engine.compiler.kernels.kernel import Strides
from engine.compiler.kernels.products.arithmetic import Words
from engine.compiler.kernels.products.grouped_product import GroupedProduct
from engine.compiler.kernels.products.matrix import Matrix
from engine.compiler.kernels.products.product import (
    Product,
    choose_product_tile,
    is_supported_layout,
    symbolic_panel,
)
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.fusion import Fused, ImageOf, Result, fuse_following, unfused
from engine.compiler.lowering.rules.convolution.conv_geometry import ConvParameters
from engine.compiler.lowering.rules.convolution.conv_kernels import direct
from engine.compiler.lowering.rules.convolution.conv_steps import packed_in_run
from engine.compiler.lowering.rules.indexing.gather import BITS, indices_of
from engine.compiler.lowering.rules.products.linear import linear, spaced
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import KernelStep, Lowered, NotLoweredError, computable, dense_strides, derived
from engine.compiler.storage import FLOAT32, View, inverse, row_major
from engine.ir.strided import Strided
from engine.layers.linear.linear import Linear
from engine.layers.linear.matmul import AddMatmul, GroupedMatmul, Matmul
from engine.passes.support.byte_products import BYTES
from engine.promotion import broadcast_sizes
from engine.tensor import Array

# Rows of the left factor and elements of the right one from which the right one is packed first.
PACKED_ROWS, PACKED_ELEMENTS = 64, 65_536


@kernels_for(Matmul, rows=True, doubles=True)
def lower_matmul(context: Context) -> Lowered:
    """Lower input @ other, of any rank."""
    weight = _weight(context, context.argument(1))
    if weight is not None and context.tensor(0).shape:
        return linear(context, context.tensor(0), weight.T, None)
    return product(context, context.tensor(0), context.tensor(1), unfused(context.op))


@kernels_for(AddMatmul, doubles=True)
def lower_add_matmul(context: Context) -> Lowered:
    """Lower beta * input + alpha * (first @ second)."""
    layer = context.layer(AddMatmul)
    return _added(context, (0, layer.beta), (context.tensor(1), context.tensor(2)), context.argument(2), layer.alpha)


@kernels_for(Linear, rows=True, doubles=True)
def lower_linear(context: Context) -> Lowered:
    """Lower x @ weight.T + bias, also with a computed weight."""
    weight = context.argument(1)
    if isinstance(weight, View):
        return _computed_linear(context)
    known, bias = context.weight(1), context.argument(2)
    if known.ndim == 2 and (isinstance(bias, View) or (isinstance(bias, np.ndarray) and bias.shape != (len(known),))):
        return _computed_linear(context)
    bias = context.optional_weight(2)
    if known.ndim != 2:
        raise NotLoweredError("its weight has an unusual shape")
    return linear(context, context.tensor(0), known, bias)


def _computed_linear(context: Context) -> Lowered:
    x, weight, first = context.tensor(0), context.tensor(1), unfused(context.op)
    if len(weight.shape) != 2:
        raise NotLoweredError("its weight has an unusual shape")
    if context.argument(2) is not None:
        first = Fused(first.operand, apply("add", Operand(0), Operand(1)), (context.tensor(2),), first.operators)
    return product(context, x, _turned(weight), first)


@dataclass(frozen=True, slots=True)
class Narrow:
    """Narrow numbers that factors hold; see ``Product``."""

    words: Words
    dtype: str
    zeros: tuple[int, int] = (0, 0)


def product(
    context: Context,
    left: View,
    right: View,
    first: Fused,
    order: Sequence[int] | None = None,
    narrow: Narrow | None = None,
) -> Lowered:
    """Lower left @ right with the operators that follow.

    Args:
        first: the operator's result, before the operators that follow.
        order: permutation of the result's dimensions to batch, rows, columns.
        narrow: what the factors hold instead of floats.

    Raises:
        NotLoweredError: it does not lie in matrices.
    """
    form, order = _Form.of(left, right), range(context.result_spec.rank) if order is None else order
    form = form if narrow is None else replace(form, is_swapped=False)

    def as_image(array: Strided) -> Strided:
        return form.as_image(array.transpose(order))

    result = _result(context, fuse_following(context.lowering, first, as_image), as_image, order)
    return result.lowered(*_steps(context, left, right, form, result, narrow))


def multiplied(
    context: Context,
    left: View,
    right: View,
    target: View,
    tree: Expr = RESULT,
    views: Sequence[View] = (),
) -> list[KernelStep]:
    """Return the steps that store left @ right, or an expression of it and others, in the target.

    Raises:
        NotLoweredError: it does not lie in matrices.
    """
    form = _Form.of(left, right)
    fused = Fused(context.op.outputs[0], tree, tuple(views), (context.op.name,))
    result = Result.of(fused, target, form.as_image, context.lowering.fault_flag)
    return _steps(context, left, right, form, result)


def _steps(
    context: Context, left: View, right: View, form: _Form, result: Result, narrow: Narrow | None = None
) -> list[KernelStep]:
    steps: list[KernelStep] = []
    n, columns, h, rows = result.image.shape
    words: Words = "float" if narrow is None else narrow.words
    tile_rows, vectors = choose_product_tile(context.host, rows, columns, form.terms, words)
    a = form.stacked(context, left, steps, is_left=True)
    b = form.stacked(context, right, steps, is_left=False)
    if form.is_swapped:
        a, b = _turned(b), _turned(a)
    if narrow is None and _is_packed_once(a, b):
        return [*steps, *_by_rows(context, result, a, b)]
    if not is_supported_layout(context.host, b.shape[-2:], b.strides[-2:], vectors):
        b = context.copied(b, steps)
    if narrow is None:
        a, spacing = spaced(context, a, columns)
        steps.extend(spacing)
    elif a.strides[-1] != 1 and form.terms > 1:
        a = context.copied(a, steps)
    kernel = Product(
        stack=(n, h),
        rows=rows,
        columns=columns,
        terms=form.terms,
        left=_matrix(a),
        right=_matrix(b),
        target=dense_strides(result.image),
        epilogue=result.epilogue,
        tile_rows=tile_rows,
        vectors=vectors,
        panel=symbolic_panel(context.host, columns, vectors),
        host=context.host,
        **({} if narrow is None else asdict(narrow)),
    )
    return [*steps, result.step(kernel, [a, b])]


def _is_packed_once(left: View, right: View) -> bool:
    """Return whether the right factor is packed once: otherwise every tile of rows would pack it again."""
    is_alone = left.shape[:2] == (1, 1) and left.strides[3] == 1
    return is_alone and left.shape[2] >= PACKED_ROWS and right.meta.size >= PACKED_ELEMENTS


def _by_rows(context: Context, result: Result, left: View, right: View) -> list[KernelStep]:
    """Return the steps of a product as a linear layer whose weights are packed at run time."""
    left, spacing = spaced(context, left, right.shape[3])
    weight = derived(right, right.meta[0, 0].T[:, :, None, None, None])
    source, target = Strides(0, 0, left.strides[2]), dense_strides(result.image)
    kernel = direct(context, result, ConvParameters(kernel=(1, 1)), weight.meta, source, target)
    packed, packing = packed_in_run(context, kernel, weight, None)
    return [*spacing, *packing, result.step(kernel, [left, packed])]


@dataclass(frozen=True, slots=True)
class _Form:
    """Product as a batch of two dimensions.

    Args:
        lead: batch dimensions of the result.
        rows, columns, terms: of each product.
        is_swapped: whether right.T @ left.T is computed instead: a single column fills no vector.
    """

    lead: tuple[int, ...]
    rows: int
    columns: int
    terms: int
    is_swapped: bool

    @classmethod
    def of(cls, left: View, right: View) -> _Form:
        """Return the form of two factors; a vector is a row or a column."""
        if not left.shape or not right.shape:
            raise NotLoweredError("an operand is a scalar")
        terms, rows = left.shape[-1], left.shape[-2] if len(left.shape) > 1 else 1
        columns = right.shape[-1] if len(right.shape) > 1 else 1
        lead = broadcast_sizes(left.shape[:-2], right.shape[:-2])
        if math.prod(right.shape[:-2]) == 1 and left.derive(left.meta.reshape(-1, terms)) is not None:
            rows, lead = rows * math.prod(lead), ()  # all rows are multiplied by the same matrix
        return cls(lead, rows, columns, terms, columns == 1 and rows > 1)

    @property
    def stack(self) -> tuple[int, int]:
        """Return the batch dimensions as two."""
        return math.prod(self.lead[:-1]), self.lead[-1] if self.lead else 1

    def as_image(self, array: Strided) -> Strided:
        """View an array of the result's shape as (n, columns, h, rows), or with the two swapped."""
        matrices = array.reshape(*self.stack, self.rows, self.columns)
        return matrices.transpose(0, 2, 1, 3) if self.is_swapped else matrices.transpose(0, 3, 1, 2)

    def stacked(self, context: Context, view: View, steps: list[KernelStep], *, is_left: bool) -> View:
        """Return a factor as (n, h, rows, terms) or (n, h, terms, columns); add the copy this may take."""
        sizes = (self.rows, self.terms) if is_left else (self.terms, self.columns)
        matrix = view.meta.reshape(*(view.shape[:-2] if self.lead else ()), *sizes)
        wide = view.derive(matrix.broadcast_to((*self.lead, *sizes)))
        if wide is None:
            raise NotLoweredError("an operand is not a batch of matrices in memory")
        found = wide.derive(wide.meta.reshape(*self.stack, *sizes))
        if found is not None:
            return found
        copied = context.copied(wide, steps)  # its batch strides do not fit two dimensions
        return View(copied.storage, copied.meta.reshape(*self.stack, *sizes))


def _result(context: Context, fused: Fused, as_image: ImageOf, order: Sequence[int]) -> Result:
    """Allocate the result, in its own order if the kernel can store so, otherwise in ``order``."""
    target, fault_flag = context.lowering.allocate(fused.operand, is_image=False), context.lowering.fault_flag
    image = target.derive(as_image(target.meta))
    if image is None or image.strides[1] > 1:
        spec = computable(context.lowering.spec(fused.operand), context.dtype, *BYTES)
        laid = row_major([spec.sizes[axis] for axis in order], spec.dtype)
        target = View(laid.storage, laid.meta.transpose(inverse(order)))
    return Result.of(fused, target, as_image, fault_flag)


def _added(
    context: Context, term: tuple[int, float], factors: tuple[View, View], known: object, alpha: float
) -> Lowered:
    """Lower beta * input + alpha * (left @ right); ``term`` is the number of the input's argument, and beta."""
    (index, beta), (left, right) = term, factors
    weight, bias = _weight(context, known), _bias(context, context.argument(index)) if beta else None
    if weight is not None and (not beta or (bias is not None and bias.size in (1, weight.shape[1]))):
        shift = None if bias is None else np.broadcast_to(bias * context.dtype.type(beta), weight.shape[1:])
        return linear(context, left, weight.T * context.dtype.type(alpha), shift)
    tree: Expr = Operand(0)
    if alpha != 1:
        tree = apply("mul", tree, float(alpha))
    views: tuple[View, ...] = ()
    if beta:
        views = (context.tensor(index),)
        other: Expr = Operand(1)
        tree = apply("add", tree, other if beta == 1 else apply("mul", other, float(beta)))
    first = Fused(context.op.outputs[0], tree, views, (context.op.name,))
    return product(context, left, right, first)


def _weight(context: Context, value: object) -> Array | None:
    """Return an argument as a matrix of weights (terms, columns), or None."""
    if not isinstance(value, np.ndarray) or value.dtype != context.dtype or value.ndim < 2 or value.size == 0:
        return None
    return value.reshape(value.shape[-2:]) if math.prod(value.shape[:-2]) == 1 else None


def _bias(context: Context, value: object) -> Array | None:
    """Return an argument as a number for every column, or one for all, or None."""
    if not isinstance(value, np.ndarray) or value.dtype != context.dtype or value.size != math.prod(value.shape[-1:]):
        return None
    return value.reshape(-1)


def _turned(view: View) -> View:
    """Return the last two dimensions exchanged."""
    return derived(view, view.meta.swapaxes(-1, -2))


def _matrix(view: View) -> Matrix:
    n, h, row, column = view.strides
    return Matrix((n, h), row, column)


@kernels_for(GroupedMatmul)
def lower_grouped_matmul(context: Context) -> Lowered:
    """Lower input[rows of e] @ other[e] with a known other; without ends a batch of products."""
    if context.argument(2) is None:
        return product(context, context.tensor(0), context.tensor(1), unfused(context.op))
    x, matrices, ends = context.tensor(0), context.weight(1), indices_of(context.argument(2), context)
    spec = context.lowering.spec(context.op.outputs[0])
    if spec is None or spec.dtype != FLOAT32 or not matrices.size or not ends.is_row_major:
        raise NotLoweredError("its shape is known only at run time, or it has no elements")
    steps: list[KernelStep] = []
    if x.strides[1] != 1:
        x = context.copied(x, steps)
    rows, (groups, terms, columns) = x.shape[0], matrices.shape
    tile_rows, vectors = choose_product_tile(context.host, rows, columns, terms)
    target = row_major(spec.sizes, FLOAT32)
    kernel = GroupedProduct(
        groups=groups,
        rows=rows,
        columns=columns,
        terms=terms,
        source=x.strides[0],
        target=target.strides[0],
        bits=BITS[ends.dtype.name],
        tile_rows=tile_rows,
        vectors=vectors,
        host=context.host,
    )
    packed = context.lowering.packed(kernel.packing, (matrices,), lambda: kernel.pack(matrices))
    return context.lowered(target, *steps, context.step(kernel, x, packed, ends, target))
