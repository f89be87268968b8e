"""Operators that only put elements elsewhere, or add them up there: complex numbers and their parts, diagonals, slices
written over, patches laid down. All are copies and maps between parts of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from engine.compiler.kernels.expr import Expr, Operand, apply
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.copying import as_words
from engine.compiler.lowering.declining import COMPLEX64, FLOAT32, NotLoweredError
from engine.compiler.lowering.rules.elementwise.composing import Composition, derived
from engine.compiler.lowering.rules.movement.padding import fill
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import Made
from engine.compiler.storage import View, row_major
from engine.layers.convolution.fold import Fold
from engine.layers.convolution.window import Window
from engine.layers.definition.layer import Layer
from engine.layers.elementwise.complex import Complex, Imag, Polar, Real, ViewAsComplex, ViewAsReal
from engine.layers.indexing.slicing import SliceCopy, SliceScatter
from engine.layers.linear.product import Cross
from engine.layers.onnx.operands.constants import whole_numbers
from engine.layers.onnx.vision.image import Col2Im
from engine.layers.operands.axes import checked_axis
from engine.layers.shape.diagonal import Diag
from engine.layers.shape.join import PadSequence

# Pieces of patches, each a map of its own.
MOST_PIECES = 64


@kernels_for(Complex, Polar)
def lower_complex(context: Context) -> Made:
    """real + i imag, or abs * (cos(angle) + i sin(angle)): two maps."""
    spec, composition = context.lowering.spec(context.op.outputs[0]), Composition(context)
    first, second = context.tensor(0), context.tensor(1)
    if spec is None or spec.dtype != COMPLEX64:
        raise NotLoweredError("there are kernels for complex numbers of float32 alone")
    parts: list[tuple[Expr, list[View]]] = [(Operand(0), [first]), (Operand(0), [second])]
    if isinstance(context.layer(Complex), Polar):
        trees = (apply("mul", Operand(0), apply(name, Operand(1))) for name in ("cos", "sin"))
        parts = [(tree, [first, second]) for tree in trees]
    target = row_major(spec.sizes, COMPLEX64)
    for (tree, operands), place in zip(parts, (target.phantom.real, target.phantom.imag), strict=True):
        wide = [derived(each, each.phantom.broadcast_to(spec.sizes)) for each in operands]
        composition.map(tree, *wide, target=derived(target, place))
    return context.made(target, *composition.steps)


@kernels_for(Real, Imag, ViewAsReal)
def lower_part(context: Context) -> Made:
    """The real or imaginary part of complex numbers, or both: a view."""
    x, layer = context.elements(0), context.layer(Layer)
    if x.dtype != COMPLEX64:
        raise NotLoweredError("there are kernels for complex numbers of float32 alone")
    if isinstance(layer, ViewAsReal):
        return context.made(as_words(x))
    return context.made(derived(x, x.phantom.real if isinstance(layer, Real) else x.phantom.imag))


@kernels_for(ViewAsComplex)
def lower_pairs(context: Context) -> Made:
    """Pairs as complex numbers: a view where they lie side by side, else a copy."""
    x = context.tensor(0)
    is_apart = x.strides[-1] != 1 or any(stride % 2 for stride in x.strides[:-1])
    pairs = row_major(x.shape, x.dtype) if is_apart else x
    copies = [context.copy(x, pairs)] if is_apart else []
    return context.made(derived(pairs, pairs.phantom.view(COMPLEX64)[..., 0]), *copies)


@kernels_for(Diag)
def lower_diag(context: Context) -> Made:
    """The diagonal of a matrix, or a matrix with one."""
    x, offset = context.tensor(0), context.layer(Diag).diagonal
    if len(x.shape) == 2:
        return context.made(derived(x, x.phantom.diagonal(offset)))
    target = context.place(is_image=False)
    line = derived(target, target.phantom.diagonal(offset))
    return context.made(target, fill(context, target, 0.0), context.copy(x, line))


@kernels_for(SliceCopy, SliceScatter)
def lower_slice_copy(context: Context) -> Made:
    """The input with another tensor in place of a slice."""
    x, source, layer = context.tensor(0), context.tensor(1), context.layer(SliceCopy)
    target = context.place()
    place = derived(target, target.phantom[layer.place(x.shape)])
    steps = [context.copy(x, target)]
    if place.phantom.size:
        steps.append(context.copy(derived(source, source.phantom.broadcast_to(place.shape)), place))
    return context.made(target, *steps)


@kernels_for(Cross)
def lower_cross(context: Context) -> Made:
    """a1 * b2 - a2 * b1 and so on, one component after the other."""
    sizes, composition = context.result_spec.sizes, Composition(context)
    dim = context.layer(Cross).dim
    axis = sizes.index(3) if dim is None else checked_axis(dim, len(sizes))
    a, b = (derived(each, each.phantom.broadcast_to(sizes)) for each in (context.tensor(0), context.tensor(1)))
    target = context.place(is_image=False)
    tree = apply("sub", apply("mul", Operand(0), Operand(1)), apply("mul", Operand(2), Operand(3)))
    for k in range(3):
        after, before = (k + 1) % 3, (k + 2) % 3
        parts = [_component(view, axis, at) for view, at in ((a, after), (b, before), (a, before), (b, after))]
        composition.map(tree, *parts, target=_component(target, axis, k))
    return context.made(target, *composition.steps)


def _component(view: View, axis: int, at: int) -> View:
    return derived(view, view.phantom.moveaxis(axis, 0)[at])


@kernels_for(Fold)
def lower_fold(context: Context) -> Made:
    """Every column laid down as a patch, piece by piece, on zeros with a margin."""
    return _laid_down(context, context.layer(Fold).windows)


@kernels_for(Col2Im)
def lower_col2im(context: Context) -> Made:
    """The same of patches that ONNX describes."""
    sizes, block = context.argument(1), context.argument(2)
    known = [None if isinstance(each, View) else whole_numbers(each, "sizes") for each in (sizes, block)]
    if known[0] is None or known[1] is None or len(known[0]) != 2:
        raise NotLoweredError("its sizes are known only in a run, or are not those of images")
    return _laid_down(context, context.layer(Col2Im).windows(known[0], known[1]))


def _laid_down(context: Context, windows: Sequence[Window]) -> Made:
    x, composition, sizes = context.tensor(0), Composition(context), context.result_spec.sizes
    pieces = [*product(*map(_pieces, windows))]
    if len(pieces) > MOST_PIECES:
        raise NotLoweredError("there is no kernel for patches that overlap so often")
    *lead, height, width = sizes
    counts = [window.count(size) or 0 for window, size in zip(windows, (height, width), strict=True)]
    patches = composition.shaped(x, [*lead, *(window.kernel for window in windows), *counts])
    around = [size + window.before + window.after for size, window in zip((height, width), windows, strict=True)]
    ground = row_major([*lead, *around], FLOAT32)
    composition.steps.append(fill(context, ground, 0.0))
    for rows, columns in pieces:
        patch = patches.phantom[..., rows, columns, :, :]
        begin = ground.phantom[..., rows.start * windows[0].dilation :, columns.start * windows[1].dilation :]
        *outer, down, across = begin.strides
        taps = windows[0].dilation * down, windows[1].dilation * across
        distances = windows[0].stride * down, windows[1].stride * across
        place = derived(ground, begin.as_strided(patch.shape, (*outer, *taps, *distances)))
        composition.map(apply("add", Operand(0), Operand(1)), place, derived(patches, patch), target=place)
    (top, left) = (window.before for window in windows)
    inner = derived(ground, ground.phantom[..., top : top + height, left : left + width])
    return composition.finish(Operand(0), inner)


def _pieces(window: Window) -> list[slice]:
    """Taps of an axis that can be added at once, for no two of them meet at a pixel."""
    size = window.stride if window.dilation == 1 else 1
    return [slice(first, min(first + size, window.kernel)) for first in range(0, window.kernel, size)]


@kernels_for(PadSequence)
def lower_pad_sequence(context: Context) -> Made:
    """The number it is padded with everywhere, and every sequence over its part of it."""
    items, layer = context.items(0), context.layer(PadSequence)
    sources = [each for each in items if isinstance(each, View)] if isinstance(items, list) else []
    if not isinstance(items, list) or len(sources) < len(items) or any(each.dtype != FLOAT32 for each in sources):
        raise NotLoweredError("its sequences are no tensors of float32 that are computed before")
    target = context.place(is_image=False)
    rows = target.phantom.moveaxis(0 if layer.batch_first else 1, 0)
    steps = [fill(context, target, layer.padding_value)]
    for row, source in zip(rows, sources, strict=True):
        length = source.shape[0]
        begin = len(row) - length if layer.padding_side == "left" else 0
        if source.phantom.size:
            steps.append(context.copy(source, derived(target, row[begin : begin + length])))
    return context.made(target, *steps)
