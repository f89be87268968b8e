"""Operators that put elements beside each other: stacks, repetitions, mirrors, patches, halves and triangles."""

from __future__ import annotations

import numpy as np

from engine.compiler.kernels.expr import Operand, apply
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.declining import FLOAT32, NotLoweredError
from engine.compiler.lowering.rules.elementwise.composing import Composition, derived
from engine.compiler.lowering.rules.elementwise.domains import domain_of
from engine.compiler.lowering.rules.movement.filling import counted
from engine.compiler.lowering.rules.movement.padding import padded
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import KernelStep, Made
from engine.compiler.storage import View, constant, row_major
from engine.ir.dims import is_symbolic
from engine.layers.convolution.fold import Unfold
from engine.layers.convolution.window import columns
from engine.layers.definition.layer import Layer
from engine.layers.elementwise.activation import GLU
from engine.layers.indexing.masking import LowerTriangle, UpperTriangle
from engine.layers.onnx.operands.constants import whole_number
from engine.layers.onnx.shape.shape import Trilu
from engine.layers.operands.axes import checked_axis
from engine.layers.shape.expand import Repeat, Tile
from engine.layers.shape.join import Stack
from engine.layers.shape.permute import Flip, FlipOne

# Tensors that are stacked, each by a copy of its own.
MOST_STACKED = 256


@kernels_for(Stack)
def lower_stack(context: Context) -> Made:
    """Every tensor copied to its place along the new dimension."""
    parts = [context.elements(index) for index, _ in enumerate(context.arguments())]
    if len(parts) > MOST_STACKED:
        raise NotLoweredError("there is no kernel for so many tensors")
    if len({part.dtype for part in parts}) > 1:
        raise NotLoweredError("there is no kernel for several dtypes")
    target = context.place_like(parts[0])
    axis = checked_axis(context.layer(Stack).dim, len(target.shape))
    places = [derived(target, target.phantom.moveaxis(axis, 0)[k]) for k, _ in enumerate(parts)]
    return context.made(target, *(context.copy(part, place) for part, place in zip(parts, places, strict=True)))


@kernels_for(Repeat, Tile)
def lower_repeat(context: Context) -> Made:
    """The tensor broadcast along new dimensions before its own."""
    x = context.elements(0)
    target = context.place_like(x, is_image=False)
    shape = (1,) * (len(target.shape) - len(x.shape)) + x.shape
    sizes = [each for whole, size in zip(target.shape, shape, strict=True) for each in (whole // size, size)]
    spread = x.phantom.reshape([each for size in shape for each in (1, size)])
    source = derived(x, spread.broadcast_to(sizes))
    return context.made(target, context.copy(source, derived(target, target.phantom.reshape(sizes))))


@kernels_for(Flip, FlipOne)
def lower_flip(context: Context) -> Made:
    """A copy that reads backwards."""
    x = context.elements(0)
    target = context.place_like(x)
    return context.made(target, context.copy(derived(x, context.layer(Layer).forward(x.phantom)), target))


@kernels_for(GLU)
def lower_glu(context: Context) -> Made:
    """First half times sigmoid(second half)."""
    x = context.tensor(0)
    axis = checked_axis(context.layer(GLU).dim, len(x.shape))
    halves = [derived(x, half) for half in x.phantom.split(2, axis)]
    return Composition(context).finish(apply("mul", Operand(0), apply("sigmoid", Operand(1))), *halves)


@kernels_for(Unfold)
def lower_unfold(context: Context) -> Made:
    """All patches, which overlap, as one view of the image with its padding; copied."""
    x, layer, target = context.tensor(0), context.layer(Unfold), context.place(is_image=False)
    steps: list[KernelStep] = []
    pairs = [(window.before, window.after) for window in layer.windows]
    if any(map(any, pairs)):
        around = [(0, 0)] * (len(x.shape) - 2) + pairs
        ground = row_major([size + sum(pair) for size, pair in zip(x.shape, around, strict=True)], FLOAT32)
        steps += padded(context, x, ground, around, "constant")
        x = ground
    patches = derived(x, columns(x.phantom, layer.windows))
    return context.made(target, *steps, context.copy(patches, derived(target, target.phantom.reshape(patches.shape))))


@kernels_for(LowerTriangle, UpperTriangle, Trilu)
def lower_triangle(context: Context) -> Made:
    """The elements where a mask of one matrix, which is known now, is on."""
    layer, x, composition = context.layer(Layer), context.elements(0), Composition(context)
    given = [context.argument(index) for index in range(1, len(context.bound.positional))]
    if any(isinstance(each, View) for each in given):
        raise NotLoweredError("its diagonal is known only in a run")
    if is_symbolic(x.shape[-2:]):
        return _symbolic_triangle(context, x, layer, given)
    mask = np.asarray(layer.forward(np.ones(x.shape[-2:], np.bool_), *given))
    tree = apply("where", Operand(1), Operand(0), 0)
    if x.dtype == FLOAT32:
        return composition.finish(tree, x, _wide(constant(mask.astype(np.float32)), x))
    target = row_major(x.shape, x.dtype)
    composition.typed(target, tree, x, constant(mask), domain=domain_of(x.dtype))
    return context.made(target, *composition.steps)


def _symbolic_triangle(context: Context, x: View, layer: Layer, given: list[object]) -> Made:
    """The same of matrices of any size: where the number of the column is far enough from that of the row."""
    if isinstance(layer, Trilu):
        is_upper, diagonal = layer.upper, whole_number(given[0], "k") if given else 0
    else:
        is_upper, diagonal = isinstance(layer, UpperTriangle), getattr(layer, "diagonal", 0)
    if diagonal is None:
        raise NotLoweredError("its diagonal is known only in a run")
    (rows, down), (columns, across) = (counted(context, size) for size in x.shape[-2:])
    distance = apply("sub", Operand(2), Operand(1))
    is_kept = apply("ge" if is_upper else "le", distance, diagonal)
    target, composition = row_major(x.shape, x.dtype), Composition(context)
    line = derived(rows, rows.phantom.reshape(-1, 1))
    composition.typed(target, apply("where", is_kept, Operand(0), 0), x, line, columns, domain=domain_of(x.dtype))
    return context.made(target, down, across, *composition.steps)


def _wide(matrix: View, x: View) -> View:
    return derived(matrix, matrix.phantom.broadcast_to(x.shape))
