"""Padding of every mode, as copies between parts of the result: the inside, then the edges axis by axis.

Zero padding of a channels-last image is its border: the result is a view of the image with part of its border. So
padding for a convolution or a pool costs nothing, also where it differs between the sides.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.compiler.kernels.expr import Number
from engine.compiler.kernels.kernel import Kernel
from engine.compiler.kernels.map import make_map
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.layout import BORDER_USES, Border
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import KernelStep, Lowered, NotLoweredError
from engine.compiler.storage import View, channels_last
from engine.graph.operator import RuntimeOperator
from engine.layers.convolution.pad import Pad
from engine.tensor import TensorSpec

Pairs = Sequence[tuple[int, int]]


@kernels_for(Pad)
def lower_pad(context: Context) -> Lowered:
    """Lower padding or cropping of a tensor."""
    layer, x, value = context.layer(Pad), context.tensor(0), _number(context)
    pairs = _pairs(layer, len(x.shape))
    border = _zeros_around(layer, pairs, value)
    out = context.op.outputs[0]
    lowering = context.lowering
    if border is not None and lowering.is_image(out) and not lowering.is_joined(out):
        further = lowering.border_for(out)
        return _with_zeros(context, x, border, further)
    target = context.allocate()
    return context.lowered(target, *padded(context, x, target, pairs, layer.mode, value))


def _number(context: Context) -> float:
    value = context.argument(1)
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.reshape(()).item()
    if value is None:
        return 0.0
    if not isinstance(value, bool | int | float):
        raise NotLoweredError("its padding value is known only at run time")
    return float(value)


def _pairs(layer: Pad, rank: int) -> Pairs:
    """Return the padding before and after each axis."""
    pairs = [(before or 0, after or 0) for before, after in layer.pairs]
    return [(0, 0)] * (rank - len(pairs)) + pairs


def _zeros_around(layer: Pad, pairs: Pairs, value: float) -> Border | None:
    """Return the zeros around an image's rows and columns, if nothing else is padded, else None."""
    is_zero = layer.mode == "constant" and value == 0 and not np.signbit(value)
    if not is_zero or len(pairs) not in (3, 4) or any(map(any, pairs[:2])) or min(map(min, pairs)) < 0:
        return None
    (top, bottom), (left, right) = [(0, 0), *pairs[2:]][-2:]
    return top, left, bottom, right


def _used_border(op: RuntimeOperator, x: TensorSpec, y: TensorSpec) -> Border | None:
    """Return the border that the padding itself is; None where it is something else."""
    layer, value = op.definition, None if op.layer is None or len(op.layer.positional) < 2 else op.layer.positional[1]
    is_known = value is None or (value.index is None and isinstance(value.constant, int | float | None))
    if not isinstance(layer, Pad) or not is_known or x.rank != y.rank or None in layer.pad:
        return None
    number = 0.0 if value is None or value.constant is None else value.constant
    assert isinstance(number, int | float)
    return _zeros_around(layer, _pairs(layer, x.rank), number)


BORDER_USES[Pad] = _used_border


def _with_zeros(context: Context, x: View, border: Border, further: Border) -> Lowered:
    """Lower to a view of the image with its border; around it remains the border that users need."""
    whole: Border = (
        border[0] + further[0],
        border[1] + further[1],
        border[2] + further[2],
        border[3] + further[3],
    )
    is_image = x.strides[1] == 1 or x.shape[1] == 1
    steps = []
    if not (is_image and x.has_border(whole)):
        source = channels_last(x.shape, whole)
        steps.append(context.copy(x, source))
        x = source
    return context.lowered(_include_border(x, border), *steps)


def _include_border(x: View, border: Border) -> View:
    """Return a view that includes so much of its own border."""
    top, left, bottom, right = border
    image = x.meta if len(x.shape) == 4 else x.meta[:, :, None]
    (n, c, height, width), (*lead, down, across) = image.shape, image.strides
    shape = (n, c, height + top + bottom, width + left + right)
    whole = x.storage.part(shape, (*lead, down, across), x.offset - top * down - left * across, x.dtype)
    rest = tuple(has - taken for has, taken in zip(x.border, border, strict=True))
    meta = whole if len(x.shape) == 4 else whole[:, :, 0]
    return View(x.storage, meta, (rest[0], rest[1], rest[2], rest[3]))


def padded(context: Context, x: View, target: View, pairs: Pairs, mode: str, value: float = 0.0) -> list[KernelStep]:
    """Return the steps that write a tensor and its padding into the target."""
    rank = len(x.shape)
    if mode != "constant" and any(min(pair) < 0 < max(pair) for pair in pairs):
        raise NotLoweredError("there is no kernel that crops on one side and pads on the other")
    cuts = zip(x.shape, pairs, strict=True)
    kept = x.derive(x.meta[tuple(slice(max(-before, 0), n - max(-after, 0)) for n, (before, after) in cuts)])
    inside = [
        slice(max(before, 0), size - max(after, 0)) for size, (before, after) in zip(target.shape, pairs, strict=True)
    ]
    if kept is None:
        raise NotLoweredError("the cropped operand is not a view")
    done = list(inside)
    steps = [context.copy(kept, _part(target, done))] if kept.meta.size else []
    for axis in range(rank):
        for edge, source in _edges(inside[axis], target.shape[axis], mode):
            places = [*done[:axis], edge, *done[axis + 1 :]]
            place = _part(target, places)
            if place.meta.size == 0:
                continue
            if source is None:
                steps.append(fill(context, place, value))
            else:
                steps.append(context.copy(_source(target, done, axis, source, place.shape), place))
        done[axis] = slice(0, target.shape[axis])
    return steps


def _edges(inside: slice, size: int, mode: str) -> list[tuple[slice, slice | None]]:
    """Return the edges before and after the inside of an axis, and the elements of the result they repeat."""
    first, last, before, after = inside.start, inside.stop, inside.start, size - inside.stop
    edges = (slice(0, before), slice(last, size))
    sources: tuple[slice | None, slice | None] = (None, None)
    if mode == "reflect":
        sources = _backwards(first + 1, before), _backwards(last - 1 - after, after)
    elif mode == "replicate":
        sources = slice(first, first + 1), slice(last - 1, last)
    elif mode == "circular":
        sources = slice(last - before, last), slice(first, first + after)
    return [(edge, source) for edge, source in zip(edges, sources, strict=True) if edge.stop > edge.start]


def _backwards(first: int, count: int) -> slice:
    """Return a slice of so many elements that ends at ``first``, in reverse."""
    return slice(first + count - 1, first - 1 if first else None, -1)


def _source(target: View, done: Sequence[slice], axis: int, source: slice, shape: tuple[int, ...]) -> View:
    places = [*done[:axis], source, *done[axis + 1 :]]
    view = target.derive(target.meta[tuple(places)].broadcast_to(shape))
    if view is None:
        raise NotLoweredError("the memory of its result is not contiguous")
    return view


def _part(target: View, places: Sequence[slice]) -> View:
    view = target.derive(target.meta[tuple(places)])
    if view is None:
        raise NotLoweredError("the memory of its result is not contiguous")
    return view


def fill(context: Context, target: View, value: float) -> KernelStep:
    """Return a step that writes one number everywhere."""
    kernel: Kernel = make_map(target.shape, target.strides, [], Number(value), context.host)
    return context.step(kernel, target)


def padded_image(context: Context, x: View, pairs: Pairs, mode: str) -> tuple[View, list[KernelStep]]:
    """Return an image with its spatial axes padded, for an operator that pads its operand, and the steps."""
    amounts = [(0, 0)] * (len(x.shape) - len(pairs)) + list(pairs)
    sizes = [size + before + after for size, (before, after) in zip(x.shape, amounts, strict=True)]
    target = channels_last(sizes, dtype=x.dtype)
    return target, padded(context, x, target, amounts, mode)
