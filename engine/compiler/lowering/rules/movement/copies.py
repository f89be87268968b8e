"""Operators that are copies and maps between parts of tensors: stacks, repetitions, patches, diagonals."""

from __future__ import annotations

from itertools import product

import numpy as np

from engine.compiler.kernels.expr import Operand, apply
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.rules.composition import Composition
from engine.compiler.lowering.rules.elementwise.typed_calls import domain_of
from engine.compiler.lowering.rules.movement.constants import integer_range
from engine.compiler.lowering.rules.movement.padding import fill, padded
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import COMPLEX64, KernelStep, Lowered, NotLoweredError, as_words, derived
from engine.compiler.storage import FLOAT32, View, constant, row_major
from engine.ir.dims import is_symbolic
from engine.layers.convolution.fold import Fold, Unfold
from engine.layers.convolution.window import Window
from engine.layers.convolution.window import columns as window_columns
from engine.layers.definition.layer import Layer
from engine.layers.elementwise.complex import Complex, Part, ViewAsComplex, ViewAsReal
from engine.layers.indexing.masking import Triangle
from engine.layers.indexing.slicing import SliceCopy, SliceScatter
from engine.layers.operands.axes import checked_axis
from engine.layers.shape.expand import Repeat, Tile
from engine.layers.shape.join import PadSequence, Stack
from engine.layers.shape.permute import Flip

# Most parts of patches, each a map of its own.
MAX_PATCH_PARTS = 64


@kernels_for(Complex)
def lower_complex(context: Context) -> Lowered:
    """Lower real + i imag to two copies."""
    spec, parts = context.lowering.spec(context.op.outputs[0]), (context.tensor(0), context.tensor(1))
    if spec is None or spec.dtype != COMPLEX64:
        raise NotLoweredError("there are kernels only for complex64")
    target = row_major(spec.sizes, COMPLEX64)
    steps = [
        context.copy(derived(part, part.meta.broadcast_to(spec.sizes)), derived(target, place))
        for part, place in zip(parts, (target.meta.real, target.meta.imag), strict=True)
    ]
    return context.lowered(target, *steps)


@kernels_for(Part, ViewAsReal)
def lower_part(context: Context) -> Lowered:
    """Lower the real or imaginary part of complex numbers, or both, to a view."""
    x, layer = context.elements(0), context.layer(Layer)
    if x.dtype != COMPLEX64:
        raise NotLoweredError("there are kernels only for complex64")
    if not isinstance(layer, Part):
        return context.lowered(as_words(x))
    return context.lowered(derived(x, x.meta.imag if layer.is_imaginary else x.meta.real))


@kernels_for(ViewAsComplex)
def lower_pairs(context: Context) -> Lowered:
    """Lower pairs of floats to complex numbers: a view if they are contiguous, else a copy."""
    x = context.tensor(0)
    is_apart = x.strides[-1] != 1 or any(stride % 2 for stride in x.strides[:-1])
    pairs = row_major(x.shape, x.dtype) if is_apart else x
    copies = [context.copy(x, pairs)] if is_apart else []
    return context.lowered(derived(pairs, pairs.meta.view(COMPLEX64)[..., 0]), *copies)


@kernels_for(SliceCopy, SliceScatter)
def lower_slice_copy(context: Context) -> Lowered:
    """Lower the input with another tensor in place of a slice."""
    x, source, layer = context.tensor(0), context.tensor(1), context.layer(SliceCopy)
    target = context.allocate()
    place = derived(target, target.meta[layer.place(x.shape)])
    steps = [context.copy(x, target)]
    if place.meta.size:
        steps.append(context.copy(derived(source, source.meta.broadcast_to(place.shape)), place))
    return context.lowered(target, *steps)


@kernels_for(Fold)
def lower_fold(context: Context) -> Lowered:
    """Lower fold: every column is added as a patch, part by part, to zeros with a margin."""
    windows = context.layer(Fold).windows
    x, composition, sizes = context.tensor(0), Composition(context), context.result_spec.sizes
    if len(windows) != 2:
        raise NotLoweredError("there are kernels for images only")
    pieces = [*product(*map(_pieces, windows))]
    if len(pieces) > MAX_PATCH_PARTS:
        raise NotLoweredError("there is no kernel for patches that overlap so often")
    *lead, height, width = sizes
    counts = [window.count(size) or 0 for window, size in zip(windows, (height, width), strict=True)]
    patches = composition.shaped(x, [*lead, *(window.kernel for window in windows), *counts])
    around = [size + window.before + window.after for size, window in zip((height, width), windows, strict=True)]
    buffer = row_major([*lead, *around], FLOAT32)
    composition.steps.append(fill(context, buffer, 0.0))
    for rows, columns in pieces:
        patch = patches.meta[..., rows, columns, :, :]
        begin = buffer.meta[..., rows.start * windows[0].dilation :, columns.start * windows[1].dilation :]
        *outer, down, across = begin.strides
        taps = windows[0].dilation * down, windows[1].dilation * across
        distances = windows[0].stride * down, windows[1].stride * across
        place = derived(buffer, begin.as_strided(patch.shape, (*outer, *taps, *distances)))
        composition.map(apply("add", Operand(0), Operand(1)), place, derived(patches, patch), target=place)
    (top, left) = (window.before for window in windows)
    inner = derived(buffer, buffer.meta[..., top : top + height, left : left + width])
    return composition.finish(Operand(0), inner)


def _pieces(window: Window) -> list[slice]:
    """Return groups of taps of an axis that can be added at once, because no two of them meet at a pixel."""
    size = window.stride if window.dilation == 1 else 1
    return [slice(first, min(first + size, window.kernel)) for first in range(0, window.kernel, size)]


@kernels_for(PadSequence)
def lower_pad_sequence(context: Context) -> Lowered:
    """Lower pad_sequence: the padding value everywhere, and every sequence over its part of it."""
    items, layer = context.items(0), context.layer(PadSequence)
    sources = [each for each in items if isinstance(each, View)] if isinstance(items, list) else []
    if not isinstance(items, list) or len(sources) < len(items) or any(each.dtype != FLOAT32 for each in sources):
        raise NotLoweredError("its sequences are not float32 tensors in memory")
    target = context.allocate(is_image=False)
    rows = target.meta.moveaxis(0 if layer.batch_first else 1, 0)
    steps = [fill(context, target, layer.padding_value)]
    for row, source in zip(rows, sources, strict=True):
        length = source.shape[0]
        begin = len(row) - length if layer.padding_side == "left" else 0
        if source.meta.size:
            steps.append(context.copy(source, derived(target, row[begin : begin + length])))
    return context.lowered(target, *steps)


# Most stacked tensors, each with a copy of its own.
MAX_STACKED = 256


@kernels_for(Stack)
def lower_stack(context: Context) -> Lowered:
    """Lower a stack: every tensor is copied to its position along the new dimension."""
    parts = [context.elements(index) for index, _ in enumerate(context.arguments())]
    if len(parts) > MAX_STACKED:
        raise NotLoweredError("there is no kernel for this many tensors")
    if len({part.dtype for part in parts}) > 1:
        raise NotLoweredError("there is no kernel for several dtypes")
    target = context.allocate_like(parts[0])
    axis = checked_axis(context.layer(Stack).dim, len(target.shape))
    places = [derived(target, target.meta.moveaxis(axis, 0)[k]) for k, _ in enumerate(parts)]
    return context.lowered(target, *(context.copy(part, place) for part, place in zip(parts, places, strict=True)))


@kernels_for(Repeat, Tile)
def lower_repeat(context: Context) -> Lowered:
    """Lower repetitions: the tensor is broadcast along new dimensions before its own."""
    x = context.elements(0)
    target = context.allocate_like(x, is_image=False)
    shape = (1,) * (len(target.shape) - len(x.shape)) + x.shape
    sizes = [each for whole, size in zip(target.shape, shape, strict=True) for each in (whole // size, size)]
    spread = x.meta.reshape([each for size in shape for each in (1, size)])
    source = derived(x, spread.broadcast_to(sizes))
    return context.lowered(target, context.copy(source, derived(target, target.meta.reshape(sizes))))


@kernels_for(Flip)
def lower_flip(context: Context) -> Lowered:
    """Lower a flip to a copy that reads backwards."""
    x = context.elements(0)
    target = context.allocate_like(x)
    return context.lowered(target, context.copy(derived(x, context.layer(Layer).forward(x.meta)), target))


@kernels_for(Unfold)
def lower_unfold(context: Context) -> Lowered:
    """Lower unfold: a copy of all overlapping patches, which are a view of the padded image."""
    x, layer, target = context.tensor(0), context.layer(Unfold), context.allocate(is_image=False)
    steps: list[KernelStep] = []
    pairs = [(window.before, window.after) for window in layer.windows]
    if any(map(any, pairs)):
        around = [(0, 0)] * (len(x.shape) - 2) + pairs
        buffer = row_major([size + sum(pair) for size, pair in zip(x.shape, around, strict=True)], FLOAT32)
        steps += padded(context, x, buffer, around, "constant")
        x = buffer
    patches = derived(x, window_columns(x.meta, layer.windows))
    return context.lowered(target, *steps, context.copy(patches, derived(target, target.meta.reshape(patches.shape))))


@kernels_for(Triangle)
def lower_triangle(context: Context) -> Lowered:
    """Lower a triangle: the elements where a known mask of one matrix is on."""
    layer, x, composition = context.layer(Triangle), context.elements(0), Composition(context)
    given = [context.argument(index) for index in range(1, len(context.bound.positional))]
    if any(isinstance(each, View) for each in given):
        raise NotLoweredError("its diagonal is known only at run time")
    if is_symbolic(x.shape[-2:]):
        return _symbolic_triangle(context, x, layer)
    mask = np.asarray(layer.forward(np.ones(x.shape[-2:], np.bool_), *given))
    tree = apply("where", Operand(1), Operand(0), 0)
    if x.dtype == FLOAT32:
        return composition.finish(tree, x, _broadcast(constant(mask.astype(np.float32)), x))
    target = row_major(x.shape, x.dtype)
    composition.typed(target, tree, x, constant(mask), domain=domain_of(x.dtype))
    return context.lowered(target, *composition.steps)


def _symbolic_triangle(context: Context, x: View, layer: Triangle) -> Lowered:
    """Lower a triangle of matrices of symbolic sizes, by the distance of column and row numbers."""
    (rows, down), (columns, across) = (integer_range(context, size) for size in x.shape[-2:])
    distance = apply("sub", Operand(2), Operand(1))
    is_kept = apply("ge" if layer.is_upper else "le", distance, layer.diagonal)
    target, composition = row_major(x.shape, x.dtype), Composition(context)
    line = derived(rows, rows.meta.reshape(-1, 1))
    composition.typed(target, apply("where", is_kept, Operand(0), 0), x, line, columns, domain=domain_of(x.dtype))
    return context.lowered(target, down, across, *composition.steps)


def _broadcast(matrix: View, x: View) -> View:
    return derived(matrix, matrix.meta.broadcast_to(x.shape))
