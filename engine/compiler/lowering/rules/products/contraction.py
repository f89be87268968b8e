"""Products of vectors and tensors that are not plain matrix products: contractions, outer products, expert groups."""

from __future__ import annotations

import math

from engine.compiler.kernels.expr import Operand, apply
from engine.compiler.kernels.products.grouped_product import GroupedProduct
from engine.compiler.kernels.products.product import choose_product_tile
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.fusion import unfused
from engine.compiler.lowering.rules.composition import Composition
from engine.compiler.lowering.rules.indexing.gather import BITS, indices_of
from engine.compiler.lowering.rules.products.linear import linear
from engine.compiler.lowering.rules.products.matmul import product
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import Lowered, NotLoweredError, derived
from engine.compiler.storage import FLOAT32, row_major
from engine.layers.linear.linear import Bilinear
from engine.layers.linear.matmul import GroupedMatmul
from engine.promotion import broadcast_sizes

# Most products of pairs in a bilinear layer.
MAX_PAIRS = 1 << 24


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
