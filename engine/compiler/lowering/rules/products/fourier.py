"""Discrete Fourier transforms: a product with the transform of the unit vectors, axis by axis.

A transform is linear in the real and imaginary parts, which are interleaved. Its matrix is what the layer returns for
vectors that are 1 or i in one place; truncation and padding are part of it. For short transforms this is faster than an
FFT; numpy computes long ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.compiler.lowering.context import Context
from engine.compiler.lowering.fusion import Result, unfused
from engine.compiler.lowering.rules.products.linear import linear_step, rows_as_image
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import COMPLEX64, KernelStep, Lowered, NotLoweredError, as_words, derived
from engine.compiler.storage import FLOAT32, View, row_major
from engine.layers.definition.layer import Layer
from engine.layers.signal.fourier import OneAxis, SeveralAxes
from engine.tensor import Array

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
