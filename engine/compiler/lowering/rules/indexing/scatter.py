"""Scatters: elements written where indices say, or combined with the old ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.compiler.kernels.elements import TYPES
from engine.compiler.kernels.expr import Number, Operand, apply
from engine.compiler.kernels.indexing.gather import IndexOperand
from engine.compiler.kernels.indexing.scatter import ElementScatter, Mode
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.rules.composition import Composition
from engine.compiler.lowering.rules.elementwise.typed_calls import domain_of
from engine.compiler.lowering.rules.indexing.gather import BITS, Slot, indexed, indices_of
from engine.compiler.lowering.rules.movement.padding import fill
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import WORDS, KernelStep, Lowered, NotLoweredError, derived
from engine.compiler.storage import FLOAT32, View, row_major
from engine.ir.dims import is_symbolic
from engine.layers.definition.layer import Layer
from engine.layers.indexing.combining import neutral
from engine.layers.indexing.indexing import IndexPut
from engine.layers.indexing.scatter import (
    IndexAdd,
    IndexCopy,
    IndexFill,
    IndexReduce,
    Put,
    Scatter,
    ScatterReduce,
)
from engine.layers.operands.axes import checked_axis
from engine.layers.operands.fitting import ADDED_RANK
from engine.layers.pooling.unpool import MaxUnpool
from engine.promotion import cast
from engine.tensor import DType, dtype_name

# Elements of a long row that a loop iteration writes: a few vectors of any host.
_PIECE = 64
_MODES: dict[str | None, Mode] = {
    None: "set", "add": "add", "sum": "add", "multiply": "mul", "prod": "mul", "amax": "max", "amin": "min",
}  # fmt: skip


@kernels_for(Scatter, ScatterReduce)
def lower_scatter(context: Context) -> Lowered:
    """Lower out[index[i][j]][j] = src[i][j] for dim 0: a copy of the input, then element after element."""
    layer: Any = context.layer(Layer)
    x, index = writable(context, 0), indices_of(context.argument(1), context)
    sizes = index.shape
    if not x.shape or len(x.shape) != len(sizes) or not index.meta.size:
        raise NotLoweredError("there is no kernel for scalars or empty indices")
    axis = checked_axis(layer.dim, len(x.shape))
    source = source_of(context, context.argument(2), x.dtype)
    if source.shape:
        if len(source.shape) != len(sizes) or any(a > b for a, b in zip(sizes, source.shape, strict=True)):
            raise NotLoweredError("the shape of its index does not match")
        source = derived(source, source.meta[tuple(slice(size) for size in sizes)])
    if any(sizes[k] > x.shape[k] for k in range(len(sizes)) if k != axis):
        raise NotLoweredError("the shape of its index does not match")
    target, steps = copied(context, x)
    kept = [0 if k == axis else step for k, step in enumerate(target.strides)]
    slot = Slot(index, axis, wraps=layer.counts_back)
    if isinstance(layer, ScatterReduce) and (layer.reduce == "mean" or not layer.include_self):
        return reduced(context, target, steps, sizes, kept, [slot], source, layer)
    return scattered(context, target, steps, sizes, kept, [slot], source, _mode(layer))


@kernels_for(IndexAdd, IndexCopy, IndexFill, IndexReduce)
def lower_index_write(context: Context) -> Lowered:
    """Lower writes of whole slices of one axis, selected by a vector."""
    layer: Any = context.layer(Layer)
    x, index = writable(context, 0), indices_of(context.argument(1), context)
    if not x.shape or len(index.shape) > 1 or not index.meta.size:
        raise NotLoweredError("there is no kernel for scalars or empty indices")
    axis = checked_axis(layer.dim, len(x.shape))
    sizes = [index.meta.size if k == axis else size for k, size in enumerate(x.shape)]
    source = source_of(context, context.argument(2), x.dtype)
    if not isinstance(layer, IndexFill) and source.shape != tuple(sizes):
        raise NotLoweredError("the shape of its slices does not match")
    target, steps = copied(context, x)
    if isinstance(layer, IndexAdd) and len(context.bound.positional) > 3:
        source = _scaled(context, source, context.argument(3), steps)
    around = [-1 if k == axis else 1 for k in range(len(sizes))]
    slot = Slot(derived(index, index.meta.reshape(around)), axis, wraps=layer.counts_back)
    kept = [0 if k == axis else step for k, step in enumerate(target.strides)]
    if isinstance(layer, IndexReduce) and (layer.reduce == "mean" or not layer.include_self):
        return reduced(context, target, steps, sizes, kept, [slot], source, layer)
    mode: Mode = "add" if isinstance(layer, IndexAdd) else _mode(layer) if isinstance(layer, IndexReduce) else "set"
    return scattered(context, target, steps, sizes, kept, [slot], source, mode)


def _scaled(context: Context, source: View, alpha: object, steps: list[KernelStep]) -> View:
    if not isinstance(alpha, int | float):
        raise NotLoweredError("its factor is known only at run time")
    if alpha == 1:
        return source
    if source.dtype != FLOAT32:
        raise NotLoweredError(f"there are no {dtype_name(source.dtype)} kernels")
    composition = Composition(context)
    scaled = composition.map(apply("mul", Operand(0), float(alpha)), source)
    steps += composition.steps
    return scaled


@kernels_for(IndexPut)
def lower_index_put(context: Context) -> Lowered:
    """Lower x[i, :, j] = values, with tensors of indices; masks are left to the reference."""
    layer, x = context.layer(IndexPut), writable(context, 0)
    target, steps = copied(context, x)
    sizes, kept, slots = indexed(context, target, context.items(1))
    source = source_of(context, context.argument(2), x.dtype)
    mode: Mode = "add" if layer.accumulate else _MODES[layer.reduce]
    return scattered(context, target, steps, sizes, kept, slots, source, mode)


@kernels_for(Put)
def lower_put(context: Context) -> Lowered:
    """Lower writes to elements of the flattened input."""
    x, index = writable(context, 0), indices_of(context.argument(1), context)
    source = source_of(context, context.argument(2), x.dtype)
    if source.meta.size != index.meta.size or not index.meta.size:
        raise NotLoweredError("the shape of its index does not match")
    target, steps = copied(context, x)
    composition = Composition(context)
    source = composition.shaped(source, index.shape)
    flat = derived(target, target.meta.reshape(-1))
    mode: Mode = "add" if context.layer(Put).accumulate else "set"
    lowered = scattered(
        context, flat, [*steps, *composition.steps], index.shape or (1,), [0] * max(len(index.shape), 1),
        [Slot(index, 0, wraps=True)], source, mode,
    )  # fmt: skip
    return Lowered(views={context.op.outputs[0].name: target}, steps=lowered.steps)


@kernels_for(MaxUnpool)
def lower_max_unpool(context: Context) -> Lowered:
    """Lower max unpooling: zeros, with each value at its index in its image."""
    layer, x, index = context.layer(MaxUnpool), context.tensor(0), indices_of(context.argument(1), context)
    shape, rank = context.result_spec.sizes, layer.spatial_rank
    if index.shape != x.shape:
        raise NotLoweredError("the shape of its indices does not match")
    return unpool(context, x, index, shape[-rank:], shape[:-rank])


def unpool(context: Context, x: View, index: View, sizes: Sequence[int], lead: Sequence[int]) -> Lowered:
    """Lower zeros (*lead, *sizes), with each value at its index in its (*sizes)."""
    target = row_major((*lead, *sizes), context.dtype)
    flat = derived(target, target.meta.reshape(*lead, math.prod(sizes)))
    kept = [*flat.strides[:-1], *(0 for _ in x.shape[len(lead) :])]
    steps = [fill(context, target, 0.0)]
    lowered = scattered(context, flat, steps, x.shape, kept, [Slot(index, len(lead))], x, "set")
    return Lowered(views={context.op.outputs[0].name: target}, steps=lowered.steps)


def _mode(layer: Any) -> Mode:
    return _MODES[layer.reduce]


def writable(context: Context, index: int) -> View:
    """Return an argument that a kernel writes a modified copy of."""
    x = context.argument(index)
    x = context.lowering.stored(x) if isinstance(x, np.ndarray) else x
    if not isinstance(x, View) or not x.meta.size or context.lowering.quantises:
        raise NotLoweredError("its operand is not a tensor, or has no elements")
    if x.dtype.name not in TYPES or x.dtype.itemsize not in WORDS:
        raise NotLoweredError(f"there are no {dtype_name(x.dtype)} kernels")
    return x


def source_of(context: Context, value: object, dtype: DType) -> View:
    """Return the written values: a tensor, or one number."""
    if isinstance(value, int | float):
        value = np.asarray(cast(value, dtype))
    value = context.lowering.stored(value) if isinstance(value, np.ndarray) else value
    if not isinstance(value, View) or value.dtype != dtype or not value.meta.size:
        raise NotLoweredError("the written values have another dtype, or are not a tensor")
    return value


def copied(context: Context, x: View) -> tuple[View, list[KernelStep]]:
    """Allocate the result, and copy the input to it."""
    target = context.allocate(is_image=False) if x.dtype == FLOAT32 else row_major(x.shape, x.dtype)
    target = target if target.is_row_major else row_major(x.shape, x.dtype)
    return target, [context.copy(x, target)]


def reduced(
    context: Context,
    target: View,
    steps: Sequence[KernelStep],
    sizes: Sequence[int],
    kept: Sequence[int],
    slots: Sequence[Slot],
    source: View,
    layer: ScatterReduce | IndexReduce,
) -> Lowered:
    """Lower a scatter that first counts the values at each index, for means and to exclude the old element."""
    composition, dtype = Composition(context, [*steps]), target.dtype
    if dtype.kind not in "iuf":
        raise NotLoweredError(f"there are no {dtype_name(dtype)} kernels for it")
    domain, counts = domain_of(dtype), row_major(target.shape, np.dtype(np.int32))
    composition.typed(counts, Number(0), domain="i64")
    one = context.lowering.stored(np.ones((), np.int32))
    composition.steps.append(scatter_step(context, counts, sizes, kept, slots, one, "add"))
    if not layer.include_self:
        kept_there = apply("where", Operand(1), neutral(layer.reduce, dtype).item(), Operand(0))
        composition.typed(target, kept_there, target, counts, domain=domain)
    mode: Mode = "add" if layer.reduce == "mean" else _MODES[layer.reduce]
    composition.steps.append(scatter_step(context, target, sizes, kept, slots, source, mode))
    if layer.reduce == "mean":
        divisor = apply("max", apply("add", Operand(1), int(layer.include_self)), 1)
        ratio = apply("floor_divide" if dtype.kind in "iu" else "div", Operand(0), divisor)
        composition.typed(target, ratio, target, counts, domain=domain)
    return context.lowered(target, *composition.steps)


def scattered(
    context: Context,
    target: View,
    steps: Sequence[KernelStep],
    sizes: Sequence[int],
    kept: Sequence[int],
    slots: Sequence[Slot],
    source: View,
    mode: Mode,
) -> Lowered:
    """Return the lowered scatter after those steps; see scatter_step()."""
    return context.lowered(target, *steps, scatter_step(context, target, sizes, kept, slots, source, mode))


def scatter_step(
    context: Context,
    target: View,
    sizes: Sequence[int],
    kept: Sequence[int],
    slots: Sequence[Slot],
    source: View,
    mode: Mode,
) -> KernelStep:
    """Return the step that writes to the target where indices say.

    Args:
        sizes, kept: sizes of the loops, and strides of the target along them, with 0 for indexed dimensions.
    """
    if mode != "set" and max(len(target.shape), len(sizes)) > ADDED_RANK:
        raise NotLoweredError("it has too many dimensions")
    wide = derived(source, source.meta.broadcast_to(sizes))
    places = [derived(each.view, each.view.meta.broadcast_to(sizes)).strides for each in slots]
    sizes, kept, steps, row = _without_row(sizes, kept, wide.strides, places)
    # Iterations of these loops write different elements of the target.
    free = [k for k, step in enumerate(kept) if step]
    order = [*free, *(k for k in range(len(sizes)) if k not in free)]
    kernel = ElementScatter(
        sizes=tuple(sizes[k] for k in order),
        target=tuple(kept[k] for k in order),
        source=tuple(steps[k] for k in order),
        positions=tuple(
            IndexOperand(
                strides=tuple(strides[k] for k in order),
                bits=BITS[each.view.dtype.name],
                size=target.shape[each.axis],
                step=target.strides[each.axis],
                wraps=each.wraps,
            )
            for each, strides in zip(slots, places, strict=True)
        ),
        mode=mode,
        dtype=target.dtype.name,
        disjoint_loops=len(free),
        row=row,
        host=context.host,
    )
    return context.step(kernel, target, source, *(each.view for each in slots))


def _without_row(
    sizes: Sequence[int], kept: Sequence[int], source: Sequence[int], places: list[tuple[int, ...]]
) -> tuple[Sequence[int], Sequence[int], Sequence[int], int]:
    """Split off the last loop where target and source have its elements side by side and no index moves along it.

    A long row is cut in pieces, which threads share; ``places`` gets the strides of the remaining loops.

    Returns:
        Sizes, strides of the target and of the source along the remaining loops, and the elements of a row.
    """
    if len(sizes) < 2 or kept[-1] != 1 or source[-1] != 1 or any(strides[-1] for strides in places):
        return sizes, kept, source, 1
    row, pieces = sizes[-1], 1
    if not is_symbolic(row) and row % _PIECE == 0:
        row, pieces = _PIECE, row // _PIECE
    places[:] = [(*strides[:-1], 0) for strides in places]
    return (*sizes[:-1], pieces), (*kept[:-1], row), (*source[:-1], row), row
