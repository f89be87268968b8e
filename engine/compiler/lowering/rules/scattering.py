"""Elements added where an index says."""

from __future__ import annotations

from engine.compiler.kernels.picking import Positions
from engine.compiler.kernels.scattering import Scattering
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.rules.composing import derived
from engine.compiler.lowering.rules.picking import BITS, indices_of
from engine.compiler.lowering.rules.registry import NotLoweredError, kernels_for
from engine.compiler.lowering.steps import Made
from engine.layers.indexing.scatter import ScatterAdd
from engine.layers.operands.axes import checked_axis


@kernels_for(ScatterAdd)
def lower_scatter_add(context: Context) -> Made:
    """out[index[i][j]][j] += src[i][j] for dim 0: a copy of the input, then one addition after the other."""
    x, index, source = context.tensor(0), indices_of(context.argument(1), context), context.tensor(2)
    if not x.shape or not len(x.shape) == len(index.shape) == len(source.shape) or not index.phantom.size:
        raise NotLoweredError("there is no kernel for single numbers or none")
    axis = checked_axis(context.layer(ScatterAdd).dim, len(x.shape))
    sizes = index.shape
    if any(size > most for size, most in zip(sizes, source.shape, strict=True)) or any(
        sizes[k] > x.shape[k] for k in range(len(sizes)) if k != axis
    ):
        raise NotLoweredError("its index does not fit")
    target = context.place(is_image=False)
    kernel = Scattering(
        sizes=sizes,
        target=tuple(0 if k == axis else step for k, step in enumerate(target.strides)),
        source=derived(source, source.phantom[tuple(slice(size) for size in sizes)]).strides,
        positions=Positions(
            strides=index.strides,
            bits=BITS[index.dtype.name],
            size=x.shape[axis],
            step=target.strides[axis],
            wraps=False,
        ),
        host=context.host,
    )
    return context.made(target, context.copy(x, target), context.step(kernel, target, source, index))
