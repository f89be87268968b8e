"""Operators that only move elements: views where strides can say it, copies where they cannot.

The layer itself tells: it runs on the operand's phantom, and if numpy answers with a view of it, so is the result.
"""

from __future__ import annotations

import numpy as np

from engine.compiler.lowering.lowering import Lowering
from engine.compiler.lowering.rules.registry import SEE_THROUGH, NotLoweredError, lowers
from engine.compiler.storage import View, row_major
from engine.graph.operator import RuntimeOperator
from engine.layers.definition.layer import Layer
from engine.layers.elementwise import identity
from engine.layers.indexing import slicing
from engine.layers.shape import expand, join, permute, shape, split
from engine.layers.vision import shuffle
from engine.passes import JOINS

RESHAPES = (shape.Reshape, shape.ReshapeAs, shape.Flatten, shape.Ravel, shape.Unflatten, shape.Squeeze, shape.Unsqueeze)
VIEWS = (
    *RESHAPES,
    shape.AtLeast,
    permute.Permute,
    permute.Transpose,
    permute.MatrixTranspose,
    permute.Reversal,
    permute.BatchTranspose,
    permute.MoveDim,
    slicing.Slice,
    slicing.Narrow,
    split.Split,
    split.Chunk,
    split.TensorSplit,
    split.Unbind,
    expand.Expand,
    expand.ExpandAs,
    identity.Dropout,
    identity.Identity,
    identity.RawIdentity,
)
SEE_THROUGH.update((slicing.Slice, slicing.Narrow, split.Split, split.Chunk, split.TensorSplit))


@lowers(*VIEWS)
def lower_view(lowering: Lowering, op: RuntimeOperator) -> None:
    """A view, or for a reshape that cannot be one, a copy into the order that allows it."""
    layer, arguments = lowering.layer(op, Layer), lowering.arguments(op)
    x = arguments[0]
    if not isinstance(x, View):
        raise NotLoweredError("its operand is known before the run")
    results = layer.forward(*(each.phantom if isinstance(each, View) else each for each in arguments))
    several = list(results) if isinstance(results, list | tuple) else [results]
    if len(several) != len(op.outputs):
        raise NotLoweredError("its results come as a list")
    views = [x.derive(each) for each in several]
    if None in views:
        views = [_reshaped(lowering, op, x)]
    for operand, view in zip(op.outputs, views, strict=True):
        if view is not None:
            lowering.define(operand, view)


def _reshaped(lowering: Lowering, op: RuntimeOperator, x: View) -> View:
    if not isinstance(op.definition, RESHAPES):
        raise NotLoweredError("there is no kernel for this rearrangement")
    sizes = lowering.float_spec(op.outputs[0]).sizes
    target = lowering.place(op.outputs[0], lowering.is_image(op.outputs[0]))
    seen = target.derive(target.phantom.reshape(x.shape))
    if seen is not None:
        lowering.copy(x, seen, [op.name])
        return target
    flat = row_major(x.shape, x.dtype)
    lowering.copy(x, flat, [op.name])
    result = flat.derive(flat.phantom.reshape(sizes))
    if result is None:
        raise NotLoweredError("the reshape cannot be a view")
    return result


@lowers(join.Cat)
def lower_cat(lowering: Lowering, op: RuntimeOperator) -> None:
    """A concatenation; parts that were computed in their place need no copy."""
    spec = lowering.float_spec(op.outputs[0])
    parts = [lowering.tensor(op, index) for index, _ in enumerate(lowering.arguments(op))]
    axis = lowering.layer(op, join.Cat).dim % spec.rank
    together = _together(parts, axis)
    if together is not None and not lowering.is_begun(op.outputs[0]):
        lowering.define(op.outputs[0], together)
        return
    target, first = lowering.joined(op.outputs[0]), 0
    for index, part in enumerate(parts):
        slices = [slice(None)] * spec.rank
        slices[axis] = slice(first, first + part.shape[axis])
        place = target.derive(target.phantom[tuple(slices)])
        if place is None:
            raise NotLoweredError("its parts have no place")
        if _is_same(place, part):
            lowering.fusions.setdefault(JOINS, []).append(op.inputs[index].name)
        else:
            lowering.copy(part, place, [op.name])
        first += part.shape[axis]
    lowering.define(op.outputs[0], target)


def _is_same(a: View, b: View) -> bool:
    return a.storage is b.storage and a.offset == b.offset and a.strides == b.strides


def _together(parts: list[View], axis: int) -> View | None:
    """The parts seen as one tensor, if they lie one after the other in a storage already."""
    first = parts[0]
    step = first.phantom.strides[axis]
    at = first.offset
    for part in parts:
        same = part.storage is first.storage and part.phantom.strides == first.phantom.strides
        if not same or part.offset != at:
            return None
        at += part.shape[axis] * step
    size = sum(part.shape[axis] for part in parts)
    shape_ = (*first.shape[:axis], size, *first.shape[axis + 1 :])
    whole = np.lib.stride_tricks.as_strided(first.phantom, shape_, first.phantom.strides)
    view = first.derive(whole)
    return view if view is None or axis != 1 else View(view.storage, view.phantom, first.border)


@lowers(shuffle.ChannelShuffle, shuffle.PixelShuffle, shuffle.PixelUnshuffle, image=True)
def lower_shuffle(lowering: Lowering, op: RuntimeOperator) -> None:
    """Channels to other channels or to pixels: a copy between two views of six dimensions."""
    x, layer = lowering.tensor(op, 0), lowering.layer(op, Layer)
    if len(x.shape) != 4:
        raise NotLoweredError("there is no kernel for this rank")
    target = lowering.place(op.outputs[0], is_image=True)
    n, c, h, w = x.shape
    order: tuple[int, ...]
    if isinstance(layer, shuffle.ChannelShuffle):
        source, order = x.phantom.reshape(n, layer.groups, c // layer.groups, h, w), (0, 2, 1, 3, 4)
    elif isinstance(layer, shuffle.PixelShuffle):
        r = layer.upscale_factor
        source, order = x.phantom.reshape(n, c // (r * r), r, r, h, w), (0, 1, 4, 2, 5, 3)
    elif isinstance(layer, shuffle.PixelUnshuffle):
        r = layer.downscale_factor
        source, order = x.phantom.reshape(n, c, h // r, r, w // r, r), (0, 1, 3, 5, 2, 4)
    else:
        raise NotLoweredError("there is no kernel for it")
    moved = source.transpose(order)
    seen, place = x.derive(moved), target.derive(target.phantom.reshape(moved.shape))
    if seen is None or place is None:
        raise NotLoweredError("the tensor's dimensions cannot be split in place")
    lowering.copy(seen, place, [op.name])
    lowering.define(op.outputs[0], target)
