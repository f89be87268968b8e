"""Distances between all rows of two tensors, and differences of neighbouring elements."""

from __future__ import annotations

from engine.compiler.kernels.expr import Operand, apply, substitute
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.fusion import Fused
from engine.compiler.lowering.rules.composition import Composition
from engine.compiler.lowering.rules.products.matmul import product
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.rules.rows.norms import norm_of
from engine.compiler.lowering.steps import Lowered, NotLoweredError, derived
from engine.layers.operands.axes import checked_axis
from engine.layers.reduction.distance import Cdist
from engine.layers.reduction.scan import Diff

X, Y = Operand(0), Operand(1)
# Most repeated differences, each a map of its own.
_MAX_DIFFERENCES = 8


@kernels_for(Cdist, doubles=True)
def lower_cdist(context: Context) -> Lowered:
    """Lower the distances between all rows of two operands; by a product where the reference uses one."""
    layer, composition = context.layer(Cdist), Composition(context)
    a, b = context.tensor(0), context.tensor(1)
    many = max(a.shape[-2], b.shape[-2]) > 25
    first = derived(a, a.meta[..., :, None, :])
    second = derived(b, b.meta[..., None, :, :])
    sizes = context.result_spec.sizes
    if layer.p != 2 or not (layer.compute_mode == 1 or (many and layer.compute_mode != 2)):
        before, mode, after = norm_of(float(layer.p))
        parts = composition.map(substitute(before, [apply("sub", X, Y)]), first, second)
        found = composition.reduce(parts, [len(sizes)], mode)
        return composition.finish(after, composition.as_result(found))
    squares = []
    for each, view in ((a, first), (b, second)):
        total = composition.reduce(composition.map(apply("square", X), each), [len(each.shape) - 1], "sum")
        spread = total.meta.reshape(view.shape[:-1])
        squares.append(derived(total, spread.broadcast_to(sizes)))
    distance = apply("sub", apply("add", Operand(1), Operand(2)), apply("mul", X, 2.0))
    tree = apply("sqrt", apply("max", distance, 0.0))
    fused = Fused(context.op.outputs[0], tree, tuple(squares), (context.op.name,))
    lowered = product(context, a, derived(b, b.meta.swapaxes(-1, -2)), fused)
    return Lowered(views=lowered.views, steps=[*composition.steps, *lowered.steps], fusions=lowered.fusions)


@kernels_for(Diff, doubles=True)
def lower_diff(context: Context) -> Lowered:
    """Lower repeated differences of neighbouring elements."""
    x, layer, composition = context.tensor(0), context.layer(Diff), Composition(context)
    if any(context.argument(index) is not None for index in range(1, len(context.bound.positional))):
        raise NotLoweredError("there is no kernel for differences with prepended or appended elements")
    axis = checked_axis(layer.dim, len(x.shape))
    if not 0 < layer.n <= _MAX_DIFFERENCES or layer.n >= x.shape[axis]:
        raise NotLoweredError("there is no kernel for this number of differences")
    for turn in range(layer.n):
        moved = x.meta.moveaxis(axis, 0)
        pair = [derived(x, part.moveaxis(0, axis)) for part in (moved[1:], moved[:-1])]
        if turn == layer.n - 1:
            return composition.finish(apply("sub", X, Y), *pair)
        x = composition.map(apply("sub", X, Y), *pair)
    raise NotLoweredError("it has no differences")
