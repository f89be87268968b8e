"""Discrete Fourier transforms: a product with the transform of the unit vectors, axis by axis.

A transform is linear in the real and imaginary parts, which are interleaved. Its matrix is what the layer returns for
vectors that are 1 or i in one place; truncation and padding are part of it. For short transforms this is faster than an
FFT; numpy computes long ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.compiler.lowering.context import Context
from engine.compiler.lowering.fusion import Result, unfused
from engine.compiler.lowering.rules.composition import Composition
from engine.compiler.lowering.rules.products.linear import linear_step, multiply_frames, rows_as_image
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import COMPLEX64, KernelStep, Lowered, NotLoweredError, as_words, derived
from engine.compiler.storage import FLOAT32, View, row_major
from engine.ir.dims import hint, specialise
from engine.layers.definition.layer import Layer
from engine.layers.onnx.shape.signal import DFT, STFT
from engine.layers.signal.fourier import OneAxis, SeveralAxes
from engine.tensor import Array, TensorSpec

# Largest matrix for few rows and for many rows; beyond that an FFT, which takes n log n, is faster.
FEW_PRODUCTS, MAX_PRODUCTS = 2**16, 2**19
MANY_ROWS = 16


@dataclass(frozen=True, slots=True)
class _Stage:
    """Transform along one axis, to so many points."""

    axis: int
    points: int
    transform: Callable[..., Any]
    norm: str | None

    def matrix(self, size: int, is_complex: bool) -> Array:
        """Return the transform of the unit vectors, times i too for complex input, in float64."""
        units = np.eye(size)
        rows = np.stack([units + 0j, 1j * units], 1).reshape(2 * size, size) if is_complex else units
        points = int(self.points)  # numpy takes no symbolic size: the size becomes a guard
        return np.asarray(self.transform(rows, points, -1, self.norm))


@kernels_for(*OneAxis.__subclasses__(), *SeveralAxes.__subclasses__())
def lower_transform(context: Context) -> Lowered:
    """Lower a transform along one axis or several."""
    layer, x = context.layer(Layer), context.argument(0)
    assert isinstance(layer, OneAxis | SeveralAxes)
    if not isinstance(x, View) or x.dtype not in (FLOAT32, COMPLEX64) or not x.meta.size:
        raise NotLoweredError("there are transforms only for float32 and complex64")
    steps: list[KernelStep] = []
    for stage in _stages(layer, x.shape):
        x = _transformed(context, x, stage, steps)
    return context.lowered(x, *steps)


def _stages(layer: OneAxis | SeveralAxes, shape: tuple[int, ...]) -> Iterator[_Stage]:
    """Yield one axis after the other, real points first and last."""
    axes, points = layer.along(shape)
    *others, last = [
        _Stage(axis, count, layer.computes(number == len(axes) - 1), layer.norm)
        for number, (axis, count) in enumerate(zip(axes, points, strict=True))
    ]
    yield from (last, *others) if layer.begins_with_last else (*others, last)


def _transformed(context: Context, x: View, stage: _Stage, steps: list[KernelStep]) -> View:
    """Return the transform of a tensor, as the product of its rows with a matrix."""
    moved = derived(x, x.meta.moveaxis(stage.axis, -1))
    size, count = moved.shape[-1], moved.meta.size // moved.shape[-1]
    if 2 * size * stage.points > (MAX_PRODUCTS if count >= MANY_ROWS else FEW_PRODUCTS):
        raise NotLoweredError("numpy is faster for so many points")
    matrix = stage.matrix(size, x.dtype == COMPLEX64)
    dtype = COMPLEX64 if matrix.dtype.kind == "c" else FLOAT32
    weight = np.ascontiguousarray(_as_floats(matrix).T, np.float32)
    words = as_words(moved)
    rows, copies = context.rows(words, len(words.shape) - len(moved.shape) + 1)
    target = row_major((*moved.shape[:-1], matrix.shape[-1]), dtype)
    flat = as_words(target)
    lines = derived(flat, flat.meta.reshape(count, len(weight)))
    result = Result.of(unfused(context.op), lines, rows_as_image, context.lowering.fault_flag)
    steps += [*copies, linear_step(context, result, rows, weight, None)]
    return derived(target, target.meta.moveaxis(-1, stage.axis))


def _as_floats(matrix: Array) -> Array:
    """Return columns of complex numbers as two columns each."""
    return matrix.view(np.float64) if matrix.dtype.kind == "c" else matrix


@kernels_for(DFT)
def lower_dft(context: Context) -> Lowered:
    """Lower the transform along one axis."""
    layer, x, composition = context.layer(DFT), context.tensor(0), Composition(context)
    given = [context.argument(index) for index in (1, 2)]
    if any(isinstance(each, View) for each in given):
        raise NotLoweredError("its length or axis is known only at run time")
    length, axis = layer.length_and_axis(TensorSpec(x.shape, FLOAT32), *given)
    if length is None or axis is None:
        raise NotLoweredError("its length or axis is known only at run time")
    moved = derived(x, x.meta.moveaxis(axis, -2))
    *lead, size, parts = moved.shape
    size, length = specialise((size, length))  # the matrix of the transform is a constant
    units = _units(size, parts, 2 * length, hint(math.prod(lead)))
    matrix = np.asarray(layer.forward(units, length, 1))
    target = row_major((*lead, *matrix.shape[1:]), FLOAT32)
    lines = derived(target, target.meta.reshape(-1, matrix[0].size))
    apart = composition.shaped(moved, (1, -1, size * parts))
    multiply_frames(composition, apart, lines, _weight(matrix))
    return context.lowered(derived(target, target.meta.moveaxis(-2, axis)), *composition.steps)


@kernels_for(STFT)
def lower_stft(context: Context) -> Lowered:
    """Lower the transforms of all frames, with the window in the matrix."""
    layer, x, composition = context.layer(STFT), context.tensor(0), Composition(context)
    others: list[Any] = [context.argument(index) for index in (1, 2, 3)]
    if any(isinstance(each, View) for each in others):
        raise NotLoweredError("its window or step is known only at run time")
    window, frame_length = layer.window_and_length(*others[1:])
    batch, count, bins, _ = context.result_spec.sizes
    size, parts = len(window) if window is not None else int(np.reshape(frame_length, ())), x.shape[2]
    units = _units(size, parts, 2 * bins, batch * count)
    matrix = np.asarray(layer.forward(units, 1, window, frame_length))
    signals = composition.shaped(x, (batch, x.shape[1] * parts))
    if signals.strides[1] != 1:
        copied = row_major(signals.shape, FLOAT32)
        composition.steps.append(context.copy(signals, copied))
        signals = copied
    steps = signals.meta.strides
    hop = int(np.reshape(others[0], ())) * parts * steps[1]
    overlapping = signals.meta.as_strided((batch, count, size * parts), (steps[0], hop, steps[1]))
    target = row_major((batch, count, bins, 2), FLOAT32)
    lines = derived(target, target.meta.reshape(batch * count, -1))
    multiply_frames(composition, derived(signals, overlapping), lines, _weight(matrix))
    return context.lowered(target, *composition.steps)


def _units(size: int, parts: int, results: int, rows: int) -> Array:
    """Return the unit vectors, (size * parts, size, parts)."""
    if size * parts * results > (MAX_PRODUCTS if rows >= MANY_ROWS else FEW_PRODUCTS):
        raise NotLoweredError("numpy is faster for so many points")
    return np.eye(size * parts).reshape(-1, size, parts)


def _weight(matrix: Array) -> Array:
    return np.ascontiguousarray(matrix.reshape(len(matrix), -1).T, np.float32)
