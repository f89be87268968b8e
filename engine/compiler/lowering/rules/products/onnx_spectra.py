"""Fourier transforms of numbers in pairs: a product with what the layer makes of vectors that are 1 somewhere."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from engine.compiler.lowering.context import Context
from engine.compiler.lowering.declining import FLOAT32, NotLoweredError
from engine.compiler.lowering.rules.elementwise.composing import Composition, derived
from engine.compiler.lowering.rules.products.fourier import FEW_PRODUCTS, MANY_ROWS, MOST_PRODUCTS
from engine.compiler.lowering.rules.products.frames import multiplied
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import Made
from engine.compiler.storage import View, row_major
from engine.ir.dims import hint, specialise
from engine.layers.onnx.shape.signal import DFT, STFT
from engine.tensor import Array, TensorSpec


@kernels_for(DFT)
def lower_dft(context: Context) -> Made:
    """The transform along one axis."""
    layer, x, composition = context.layer(DFT), context.tensor(0), Composition(context)
    given = [context.argument(index) for index in (1, 2)]
    if any(isinstance(each, View) for each in given):
        raise NotLoweredError("its length or axis is known only in a run")
    length, axis = layer.told(TensorSpec(x.shape, FLOAT32), *given)
    if length is None or axis is None:
        raise NotLoweredError("its length or axis is known only in a run")
    moved = derived(x, x.phantom.moveaxis(axis, -2))
    *lead, size, parts = moved.shape
    size, length = specialise((size, length))  # the matrix of the transform is a constant
    units = _units(size, parts, 2 * length, hint(math.prod(lead)))
    matrix = np.asarray(layer.forward(units, length, 1))
    target = row_major((*lead, *matrix.shape[1:]), FLOAT32)
    lines = derived(target, target.phantom.reshape(-1, matrix[0].size))
    apart = composition.shaped(moved, (1, -1, size * parts))
    multiplied(composition, apart, lines, _weight(matrix))
    return context.made(derived(target, target.phantom.moveaxis(-2, axis)), *composition.steps)


@kernels_for(STFT)
def lower_stft(context: Context) -> Made:
    """The transforms of all frames, window and all."""
    layer, x, composition = context.layer(STFT), context.tensor(0), Composition(context)
    others: list[Any] = [context.argument(index) for index in (1, 2, 3)]
    if any(isinstance(each, View) for each in others):
        raise NotLoweredError("its window or step is known only in a run")
    window, frame_length = layer.told_apart(*others[1:])
    batch, count, bins, _ = context.result_spec.sizes
    size, parts = len(window) if window is not None else int(np.reshape(frame_length, ())), x.shape[2]
    units = _units(size, parts, 2 * bins, batch * count)
    matrix = np.asarray(layer.forward(units, 1, window, frame_length))
    signals = composition.shaped(x, (batch, x.shape[1] * parts))
    if signals.strides[1] != 1:
        copied = row_major(signals.shape, FLOAT32)
        composition.steps.append(context.copy(signals, copied))
        signals = copied
    steps = signals.phantom.strides
    hop = int(np.reshape(others[0], ())) * parts * steps[1]
    overlapping = signals.phantom.as_strided((batch, count, size * parts), (steps[0], hop, steps[1]))
    target = row_major((batch, count, bins, 2), FLOAT32)
    lines = derived(target, target.phantom.reshape(batch * count, -1))
    multiplied(composition, derived(signals, overlapping), lines, _weight(matrix))
    return context.made(target, *composition.steps)


def _units(size: int, parts: int, results: int, rows: int) -> Array:
    """Vectors (of parts) that are 1 in one place, (size * parts, size, parts)."""
    if size * parts * results > (MOST_PRODUCTS if rows >= MANY_ROWS else FEW_PRODUCTS):
        raise NotLoweredError("numpy transforms so many points faster")
    return np.eye(size * parts).reshape(-1, size, parts)


def _weight(matrix: Array) -> Array:
    return np.ascontiguousarray(matrix.reshape(len(matrix), -1).T, np.float32)
