"""Products of expert groups: groups of rows, each with a matrix of its own."""

from __future__ import annotations

from engine.compiler.kernels.products.grouped_product import GroupedProduct
from engine.compiler.kernels.products.product import choose_product_tile
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.fusion import unfused
from engine.compiler.lowering.rules.indexing.gather import BITS, indices_of
from engine.compiler.lowering.rules.products.matmul import product
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import KernelStep, Lowered, NotLoweredError
from engine.compiler.storage import FLOAT32, row_major
from engine.layers.linear.matmul import GroupedMatmul


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
