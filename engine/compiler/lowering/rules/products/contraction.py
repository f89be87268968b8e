"""Products of vectors and tensors that are not plain matrix products: contractions, outer products, expert groups."""

from __future__ import annotations

import math
from dataclasses import replace
from string import ascii_letters

from engine.compiler.kernels.expr import Operand, apply
from engine.compiler.kernels.products.grouped_product import GroupedProduct
from engine.compiler.kernels.products.product import choose_product_tile
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.fusion import unfused
from engine.compiler.lowering.rules.composition import Composition
from engine.compiler.lowering.rules.indexing.gather import BITS, indices_of
from engine.compiler.lowering.rules.products.einsum import lower_einsum
from engine.compiler.lowering.rules.products.linear import linear
from engine.compiler.lowering.rules.products.matmul import product
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import Lowered, NotLoweredError, derived
from engine.compiler.storage import FLOAT32, row_major
from engine.layers.linear.einsum import Einsum
from engine.layers.linear.linear import Bilinear
from engine.layers.linear.matmul import AddOuter, GroupedMatmul
from engine.layers.linear.product import Dot, Inner, Kron, Outer, Tensordot, Vdot, Vecdot
from engine.layers.operands.axes import checked_axes, checked_axis
from engine.promotion import broadcast_sizes

X, Y = Operand(0), Operand(1)
_PRODUCT = apply("mul", X, Y)
# Most products of pairs in a bilinear layer.
MAX_PAIRS = 1 << 24


@kernels_for(Dot, Vdot, Vecdot, doubles=True)
def lower_dot(context: Context) -> Lowered:
    """Lower the sum of products along a dimension."""
    a, b, composition = context.tensor(0), context.tensor(1), Composition(context)
    layer = context.layer(Dot | Vecdot)  # type: ignore[arg-type]
    terms = composition.map(_PRODUCT, a, b)
    if not terms.shape:
        raise NotLoweredError("its operands are scalars")
    axis = checked_axis(layer.dim, len(terms.shape)) if isinstance(layer, Vecdot) else 0
    found = composition.reduce(terms, [axis], "sum")
    return composition.finish(X, composition.as_result(found))


@kernels_for(Outer, doubles=True)
def lower_outer(context: Context) -> Lowered:
    """Lower an outer product."""
    a, b = context.tensor(0), context.tensor(1)
    return Composition(context).finish(_PRODUCT, derived(a, a.meta[:, None]), b)


@kernels_for(AddOuter, doubles=True)
def lower_add_outer(context: Context) -> Lowered:
    """Lower beta * input + alpha * outer."""
    layer, a, b = context.layer(AddOuter), context.tensor(1), context.tensor(2)
    tree = apply("mul", _PRODUCT, float(layer.alpha))
    column = derived(a, a.meta[:, None])
    if layer.beta == 0:
        return Composition(context).finish(tree, column, b)
    term = apply("mul", Operand(2), float(layer.beta))
    return Composition(context).finish(apply("add", tree, term), column, b, context.tensor(0))


@kernels_for(Bilinear, doubles=True)
def lower_bilinear(context: Context) -> Lowered:
    """Lower a bilinear layer: a linear layer of all products of two rows' elements."""
    a, b, weight, bias = context.tensor(0), context.tensor(1), context.weight(2), context.optional_weight(3)
    left, right = derived(a, a.meta[..., :, None]), derived(b, b.meta[..., None, :])
    sizes = broadcast_sizes(left.shape, right.shape)
    if math.prod(sizes) > MAX_PAIRS or (bias is not None and bias.ndim != 1):
        raise NotLoweredError("there is no kernel for this many pairs")
    composition = Composition(context)
    pairs = composition.map(apply("mul", Operand(0), Operand(1)), left, right)
    rows = derived(pairs, pairs.meta.reshape(*sizes[:-2], sizes[-2] * sizes[-1]))
    lowered = linear(context, rows, weight.reshape(len(weight), -1), bias)
    return Lowered(views=lowered.views, steps=[*composition.steps, *lowered.steps], fusions=lowered.fusions)


@kernels_for(Kron, doubles=True)
def lower_kron(context: Context) -> Lowered:
    """Lower a Kronecker product."""
    a, b, composition = context.tensor(0), context.tensor(1), Composition(context)
    target = context.allocate(is_image=False)
    rank = max(len(a.shape), len(b.shape))
    sizes_a, sizes_b = ((1,) * (rank - len(each.shape)) + each.shape for each in (a, b))
    spread_a = derived(a, a.meta.reshape([size for m in sizes_a for size in (m, 1)]))
    spread_b = derived(b, b.meta.reshape([size for n in sizes_b for size in (1, n)]))
    pairs = [size for pair in zip(sizes_a, sizes_b, strict=True) for size in pair]
    composition.map(_PRODUCT, spread_a, spread_b, target=derived(target, target.meta.reshape(pairs)))
    return context.lowered(target, *composition.steps)


@kernels_for(Inner, Tensordot, doubles=True)
def lower_contraction(context: Context) -> Lowered:
    """Lower the sum of products over pairs of dimensions, as an einsum."""
    a, b = context.tensor(0), context.tensor(1)
    layer = context.layer(Inner | Tensordot)  # type: ignore[arg-type]
    if not a.shape or not b.shape or len(a.shape) + len(b.shape) > len(ascii_letters):
        raise NotLoweredError("its operands are scalars, or have too many dimensions")
    dims = (layer.dims_self, layer.dims_other) if isinstance(layer, Tensordot) else ((-1,), (-1,))
    axes_a, axes_b = checked_axes(dims[0], len(a.shape)), checked_axes(dims[1], len(b.shape))
    if not axes_a:
        raise NotLoweredError("there is no kernel for a sum over no dimensions")
    first = list(ascii_letters[: len(a.shape)])
    second = list(ascii_letters[len(a.shape) : len(a.shape) + len(b.shape)])
    for m, n in zip(axes_a, axes_b, strict=True):
        if a.shape[m] != b.shape[n]:
            raise NotLoweredError("the shapes of its operands do not match")
        second[n] = first[m]
    rest = [each for k, each in enumerate(first) if k not in axes_a]
    rest += [each for k, each in enumerate(second) if k not in axes_b]
    equation = f"{''.join(first)},{''.join(second)}->{''.join(rest)}"
    bound = replace(context.bound, layer=Einsum(equation=equation), dynamic={})
    return lower_einsum(replace(context, bound=bound))


@kernels_for(GroupedMatmul)
def lower_grouped_matmul(context: Context) -> Lowered:
    """Lower input[rows of e] @ other[e] with a known other; without ends a batch of products."""
    if context.argument(2) is None:
        return product(context, context.tensor(0), context.tensor(1), unfused(context.op))
    x, matrices, ends = context.tensor(0), context.weight(1), indices_of(context.argument(2), context)
    spec = context.lowering.spec(context.op.outputs[0])
    if spec is None or spec.dtype != FLOAT32 or not matrices.size or not ends.is_row_major:
        raise NotLoweredError("its shape is known only at run time, or it has no elements")
    steps = []
    if x.strides[1] != 1:
        copied = row_major(x.shape, x.dtype)
        steps.append(context.copy(x, copied))
        x = copied
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
