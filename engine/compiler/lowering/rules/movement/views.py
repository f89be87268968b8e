"""Operators that only move elements: views where strides can describe the result, copies where they cannot.

The layer itself decides: it runs on the operand's meta tensor, and if the result is a view of it, so is the lowered
one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.compiler.lowering.context import Context
from engine.compiler.lowering.layout import CHANNEL_SELECTORS, slice_of
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import Lowered, NotLoweredError
from engine.compiler.storage import FLOAT32, View, row_major
from engine.graph.operand import RuntimeOperand
from engine.layers.attention.attention import AttentionMask
from engine.layers.creation.container import Unpack
from engine.layers.creation.matrices import MeshGrid
from engine.layers.definition.layer import Layer
from engine.layers.elementwise import complex, identity
from engine.layers.indexing import slicing
from engine.layers.shape import diagonal, expand, join, permute, split
from engine.layers.vision import shuffle
from engine.passes import JOINS
from engine.passes.support import permutations
from engine.passes.support.byte_products import BYTES

RESHAPES = permutations.VIEWS
"""Layers that change only the shape, with the elements in the same order."""
VIEWS = (
    *RESHAPES,
    permute.Permute,
    permute.Transpose,
    permute.Reversal,
    permute.MoveDim,
    slicing.Slice,
    slicing.Narrow,
    slicing.Windows,
    split.Split,
    split.Chunk,
    split.TensorSplit,
    split.Unbind,
    split.AxisSplit,
    expand.Expand,
    expand.ExpandAs,
    identity.Dropout,
    identity.Identity,
    identity.RawIdentity,
    AttentionMask,
    complex.Resolved,
    diagonal.Diagonal,
)
# Most dimensions of a roll, each of which doubles the copies.
MAX_ROLLED = 3
CHANNEL_SELECTORS.update((slicing.Slice, slicing.Narrow, split.Split, split.Chunk, split.TensorSplit))


@kernels_for(*VIEWS)
def lower_view(context: Context) -> Lowered:
    """Lower to a view, or for a reshape that cannot be one, to a copy into the order that allows it."""
    layer, arguments = context.layer(Layer), context.arguments()
    outputs: Sequence[RuntimeOperand] = context.op.outputs
    x = arguments[0]
    if isinstance(x, np.ndarray) and x.size:  # its result is too large to be a known value
        x = arguments[0] = context.lowering.stored(x)
    if not isinstance(x, View):
        raise NotLoweredError("its operand is a constant")
    results = layer.forward(*(each.meta if isinstance(each, View) else each for each in arguments))
    several = list(results) if isinstance(results, list | tuple) else [results]
    unpacked = _unpacked(context) if isinstance(results, list | tuple) else None
    if unpacked is not None:
        outputs = unpacked
    if len(several) != len(outputs):
        raise NotLoweredError("its results are a list")
    views = [view for each in several if (view := x.derive(each)) is not None]
    if len(views) == len(outputs):
        return Lowered(views={operand.name: view for operand, view in zip(outputs, views, strict=True)})
    if not isinstance(layer, RESHAPES):
        raise NotLoweredError("there is no kernel for this reordering of elements")
    return _reshaped(context, x)


def _unpacked(context: Context) -> Sequence[RuntimeOperand] | None:
    """Return the operands that the items of a list become, if one operator unpacks it and it is used nowhere else."""
    outputs, names = context.op.outputs, context.lowering.outputs
    if len(outputs) != 1 or outputs[0].name in names or len(outputs[0].consumers) != 1:
        return None
    (user,) = outputs[0].consumers
    return user.outputs if isinstance(user.definition, Unpack) and user.name not in context.lowering.refused else None


@kernels_for(MeshGrid, expand.BroadcastTensors)
def lower_spread(context: Context) -> Lowered:
    """Lower tensors broadcast along each other's dimensions to views, if the list of them is unpacked."""
    items, outputs = context.items(0), _unpacked(context)
    sources = [each for each in items if isinstance(each, View)] if isinstance(items, list) else []
    if outputs is None or not isinstance(items, list) or not len(items) == len(sources) == len(outputs):
        raise NotLoweredError("its operands or its results are known only at run time")
    grids = context.layer(Layer).forward([each.meta for each in sources])
    views = [view for each, grid in zip(sources, grids, strict=True) if (view := each.derive(grid)) is not None]
    if len(views) < len(outputs):
        raise NotLoweredError("there is no kernel for this reordering of elements")
    return Lowered(views={operand.name: view for operand, view in zip(outputs, views, strict=True)})


@kernels_for(Unpack)
def lower_unpack(context: Context) -> Lowered:
    """Lower the items of a list whose producer has set their memory."""
    views = {each.name: context.lowering.view(each) for each in context.op.outputs}
    known = {name: view for name, view in views.items() if view is not None}
    if len(known) < len(views):
        raise NotLoweredError("there is no kernel for it")
    return Lowered(views=known)


def _reshaped(context: Context, x: View) -> Lowered:
    target = context.allocate_like(x)
    seen = target.derive(target.meta.reshape(x.shape))
    if seen is not None:
        return context.lowered(target, context.copy(x, seen))
    flat = row_major(x.shape, x.dtype)
    result = flat.derive(flat.meta.reshape(target.shape))
    if result is None:
        raise NotLoweredError("the reshape cannot be a view")
    return context.lowered(result, context.copy(x, flat))


@kernels_for(permute.Roll)
def lower_roll(context: Context) -> Lowered:
    """Lower a roll: along every dimension two parts, each copied to its new position."""
    layer, x = context.layer(permute.Roll), context.elements(0)
    if layer.dims is None or len({dim % len(x.shape) for dim in layer.dims}) < len(layer.dims):
        raise NotLoweredError("there is no kernel for a roll of all dimensions as one, or of one dimension twice")
    if len(layer.dims) > MAX_ROLLED:
        raise NotLoweredError("there is no kernel for a roll of this many dimensions")
    target = context.allocate_like(x)
    pairs = [(x, target)]
    for dim, shift in zip(layer.dims, layer.shifts, strict=True):
        pairs = [part for pair in pairs for part in _rolled(*pair, dim % len(x.shape), shift)]
    return context.lowered(target, *(context.copy(source, place) for source, place in pairs))


def _rolled(source: View, target: View, axis: int, shift: int) -> list[tuple[View, View]]:
    """Return the parts before and after the element that becomes the first, and their new positions."""
    size = source.shape[axis]
    if not -size < shift < size:  # avoid the remainder, which would be an expression for a symbolic size
        shift %= size
    elif shift < 0:
        shift += size
    parts = [(0, shift, size - shift), (size - shift, 0, shift)]
    pairs = [(slice_of(source, axis, at, n), slice_of(target, axis, to, n)) for at, to, n in parts if n]
    found = [(a, b) for a, b in pairs if a is not None and b is not None]
    if len(found) < len(pairs):
        raise NotLoweredError("its parts are not slices of the result")
    return found


@kernels_for(join.Cat)
def lower_cat(context: Context) -> Lowered:
    """Lower a concatenation; parts that were computed in their slice need no copy."""
    used = [index for index, each in enumerate(context.arguments()) if not _is_empty(each)]
    parts = [context.elements(index) for index in used]
    if len({part.dtype for part in parts}) != 1:
        raise NotLoweredError("there is no kernel for several dtypes, or for no elements")
    axis = context.layer(join.Cat).dim % len(parts[0].shape)
    state = context.lowering.appended(context.op.outputs[0], axis, context.argument(0))
    is_joined = parts[0].dtype in (FLOAT32, *BYTES) and state is None
    target = context.lowering.joined(context.op.outputs[0]) if is_joined else state or context.allocate_like(parts[0])
    steps, in_place, first = [], [], 0
    for index, part in zip(used, parts, strict=True):
        place = slice_of(target, axis, first, part.shape[axis])
        if place is None:
            raise NotLoweredError("its parts are not slices of the result")
        if _is_same(place, part):
            in_place.append(context.op.inputs[index].name)
        else:
            steps.append(context.copy(part, place))
        first += part.shape[axis]
    together = None if in_place or state is not None else _joined_view(parts, axis)
    if together is not None:
        return context.lowered(together)
    return Lowered(
        views={context.op.outputs[0].name: target}, steps=steps, fusions={JOINS: in_place} if in_place else {}
    )


def _is_empty(value: View | object) -> bool:
    return isinstance(value, View | np.ndarray) and 0 in value.shape


def _is_same(a: View, b: View) -> bool:
    return a.storage is b.storage and a.offset == b.offset and a.strides == b.strides


def _joined_view(parts: list[View], axis: int) -> View | None:
    """Return the parts as one view, if they are contiguous in one storage already."""
    first = parts[0]
    step = first.meta.strides[axis]
    at = first.offset
    for part in parts:
        same = part.storage is first.storage and part.meta.strides == first.meta.strides
        if not same or part.offset != at:
            return None
        at += part.shape[axis] * step
    size = sum(part.shape[axis] for part in parts)
    shape_ = (*first.shape[:axis], size, *first.shape[axis + 1 :])
    whole = first.meta.as_strided(shape_, first.meta.strides)
    view = first.derive(whole)
    return view if view is None or axis != 1 else View(view.storage, view.meta, first.border)


@kernels_for(shuffle.ChannelShuffle, shuffle.PixelShuffle, shuffle.PixelUnshuffle, image=True, of_bytes=True)
def lower_shuffle(context: Context) -> Lowered:
    """Lower a channel or pixel shuffle to a copy between two views of six dimensions."""
    x, layer = context.tensor(0), context.layer(Layer)
    if len(x.shape) != 4:
        raise NotLoweredError("there is no kernel for this rank")
    target = context.allocate(is_image=True)
    n, c, h, w = x.shape
    order: tuple[int, ...]
    if isinstance(layer, shuffle.ChannelShuffle):
        source, order = x.meta.reshape(n, layer.groups, c // layer.groups, h, w), (0, 2, 1, 3, 4)
    elif isinstance(layer, shuffle.PixelShuffle):
        r = layer.upscale_factor
        split = (r, r, c // (r * r)) if layer.block_first else (c // (r * r), r, r)
        source = x.meta.reshape(n, *split, h, w)
        order = (0, 3, 4, 1, 5, 2) if layer.block_first else (0, 1, 4, 2, 5, 3)
    elif isinstance(layer, shuffle.PixelUnshuffle):
        r = layer.downscale_factor
        source = x.meta.reshape(n, c, h // r, r, w // r, r)
        order = (0, 3, 5, 1, 2, 4) if layer.block_first else (0, 1, 3, 5, 2, 4)
    else:
        raise NotLoweredError("there is no kernel for it")
    moved = source.transpose(order)
    seen, place = x.derive(moved), target.derive(target.meta.reshape(moved.shape))
    if seen is None or place is None:
        raise NotLoweredError("the tensor's dimensions cannot be split in place")
    return context.lowered(target, context.copy(seen, place))
