"""Gathers: elements that indices select.

Kernels check run-time indices and never follow one out of range; the reference then reports the error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.compiler.kernels.indexing.gather import ElementGather, IndexOperand
from engine.compiler.kernels.map import merge_loops
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.rules.composition import Composition
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import WORDS, KernelStep, Lowered, NotLoweredError, derived
from engine.compiler.storage import FLOAT32, View, row_major
from engine.layers.indexing.indexing import Index, constant_slots
from engine.layers.indexing.selection import Gather, IndexSelect, Take, TakeAlongDim
from engine.layers.operands.axes import checked_axis
from engine.promotion import broadcast_sizes

BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


@dataclass(frozen=True, slots=True)
class Slot:
    """Index along one axis of the source: a view of it broadcast to the result."""

    view: View
    axis: int
    wraps: bool = False


@kernels_for(Gather)
def lower_gather(context: Context) -> Lowered:
    """Lower out[i][j][k] = input[i][index[i][j][k]][k] for dim 1."""
    x, index = source_tensor(context), indices_of(context.argument(1), context)
    if len(x.shape) != len(index.shape) or not x.shape:
        raise NotLoweredError("there is no kernel for scalars")
    layer = context.layer(Gather)
    axis = checked_axis(layer.dim, len(x.shape))
    if any(index.shape[k] > x.shape[k] for k in range(len(x.shape)) if k != axis):
        raise NotLoweredError("the shape of its index does not match")
    strides = [0 if k == axis else step for k, step in enumerate(x.strides)]
    return gathered(context, x, strides, [Slot(index, axis, wraps=layer.counts_back)])


@kernels_for(IndexSelect)
def lower_index_select(context: Context) -> Lowered:
    """Lower the selection of slices of one axis."""
    x, index = source_tensor(context), indices_of(context.argument(1), context)
    layer = context.layer(IndexSelect)
    if not x.shape:
        raise NotLoweredError("there is no kernel for scalars")
    axis = checked_axis(layer.dim, len(x.shape))
    shape = index.shape if layer.counts_back else (index.meta.size,)
    behind = (1,) * (len(x.shape) - axis - 1)
    strides = [*x.strides[:axis], *(0 for _ in shape), *x.strides[axis + 1 :]]
    slot = Slot(derived(index, index.meta.reshape((*shape, *behind))), axis, wraps=layer.counts_back)
    return gathered(context, x, strides, [slot])


@kernels_for(Index)
def lower_index(context: Context) -> Lowered:
    """Lower x[i, :, j] with tensors of indices; masks are left to the reference."""
    x = source_tensor(context)
    _, strides, found = indexed(context, x, context.items(1))
    return gathered(context, x, strides, found)


def indexed(context: Context, x: View, slots: object) -> tuple[Sequence[int], Sequence[int], Sequence[Slot]]:
    """Return the shape of x[slots], the strides of x along it with 0 for indexed dimensions, and the indices."""
    slots = constant_slots(slots) if isinstance(slots, str) else slots
    if not isinstance(slots, Sequence) or len(slots) > len(x.shape):
        raise NotLoweredError("its indices are known only at run time")
    given = {axis: indices_of(slot, context) for axis, slot in enumerate(slots) if slot is not None}
    if not given:
        raise NotLoweredError("it has no indices")
    shape = broadcast_sizes(*(each.shape for each in given.values()))
    taken, rest = sorted(given), [axis for axis in range(len(x.shape)) if axis not in given]
    lead = taken[0] if taken[-1] - taken[0] + 1 == len(taken) else 0
    steps, sizes = [x.strides[axis] for axis in rest], [x.shape[axis] for axis in rest]
    behind = len(rest) - lead
    found = []
    for axis, index in given.items():
        wide = index.meta.broadcast_to(shape)
        found.append(Slot(derived(index, wide.reshape((*shape, *(1 for _ in range(behind))))), axis, wraps=True))
    around = [*sizes[:lead], *shape, *sizes[lead:]]
    return around, [*steps[:lead], *(0 for _ in shape), *steps[lead:]], found


@kernels_for(Take)
def lower_take(context: Context) -> Lowered:
    """Lower the selection of elements of the flattened input."""
    x, index, composition = source_tensor(context), indices_of(context.argument(1), context), Composition(context)
    if not x.is_row_major and x.dtype.itemsize not in WORDS:
        raise NotLoweredError(f"there is no kernel that copies {x.dtype.name}")
    flat = composition.shaped(x, [x.meta.size])
    lowered = gathered(context, flat, [0] * len(index.shape), [Slot(index, 0, wraps=True)])
    return Lowered(views=lowered.views, steps=[*composition.steps, *lowered.steps])


@kernels_for(TakeAlongDim)
def lower_take_along(context: Context) -> Lowered:
    """Lower gather with negative indices; input and indices may broadcast except along dim."""
    x, index = source_tensor(context), indices_of(context.argument(1), context)
    dim = context.layer(TakeAlongDim).dim
    if dim is None or len(x.shape) != len(index.shape) or not x.shape:
        raise NotLoweredError("there is no kernel for scalars or different ranks")
    axis = checked_axis(dim, len(x.shape))
    sizes = [
        index.shape[k] if k == axis else max(pair) for k, pair in enumerate(zip(x.shape, index.shape, strict=True))
    ]
    strides = [0 if k == axis or x.shape[k] == 1 else step for k, step in enumerate(x.strides)]
    slot = Slot(derived(index, index.meta.broadcast_to(sizes)), axis, wraps=True)
    return gathered(context, x, strides, [slot])


def source_tensor(context: Context) -> View:
    """Return the first argument, whose elements are read."""
    x = context.argument(0)
    x = context.lowering.stored(x) if isinstance(x, np.ndarray) else x
    if not isinstance(x, View) or x.meta.size == 0 or context.lowering.quantises:
        raise NotLoweredError("its operand is not a tensor, or has no elements")
    if x.dtype.itemsize not in (1, 2, 4, 8) or x.dtype.kind not in "fiub":
        raise NotLoweredError(f"there are no {x.dtype.name} kernels")
    return x


def indices_of(value: object, context: Context) -> View:
    """Return a tensor of integers in memory."""
    value = context.lowering.stored(value) if isinstance(value, np.ndarray) else value
    if not isinstance(value, View) or value.dtype.name not in BITS:
        raise NotLoweredError("its indices are not a tensor of integers that kernels support")
    return value


def gathered(context: Context, x: View, source: Sequence[int], slots: Sequence[Slot]) -> Lowered:
    """Return the lowered gather, with loops over the result.

    Args:
        source: strides of the source along the result's dimensions; 0 for indexed dimensions.
    """
    spec = context.lowering.spec(context.op.outputs[0])
    if spec is None or not spec.size:
        raise NotLoweredError("its shape is known only at run time, or it has no elements")
    target = context.allocate() if spec.dtype == FLOAT32 else row_major(spec.sizes, spec.dtype)
    return context.lowered(target, gather_step(context, target, x, source, slots))


def gather_step(context: Context, target: View, x: View, source: Sequence[int], slots: Sequence[Slot]) -> KernelStep:
    """Return the step that stores the selected elements in the target; see gathered()."""
    sizes = target.shape
    wide = [derived(each.view, each.view.meta.broadcast_to(sizes)).strides for each in slots]
    loops = merge_loops(sizes, [target.strides, source, *wide]) or [(1, (1, 1, *(1 for _ in slots)))]
    positions = tuple(
        IndexOperand(
            strides=tuple(steps[2 + k] for _, steps in loops),
            bits=BITS[each.view.dtype.name],
            size=x.shape[each.axis],
            step=x.strides[each.axis],
            wraps=each.wraps,
        )
        for k, each in enumerate(slots)
    )
    kernel = ElementGather(
        sizes=tuple(size for size, _ in loops),
        target=tuple(steps[0] for _, steps in loops),
        source=tuple(steps[1] for _, steps in loops),
        positions=positions,
        element=x.dtype.itemsize,
        host=context.host,
    )
    return context.step(kernel, target, x, *(each.view for each in slots))
