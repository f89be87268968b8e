"""Discrete Fourier transforms: a product with the transform of the unit vectors, axis by axis.

A transform is linear in the real and imaginary parts that lie side by side, so its matrix is what the layer makes of
vectors that are 1 or i in one place; points that are cut off or filled in are part of it. Short transforms are faster
so than by halves; long ones stay with numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.compiler.lowering.context import Context
from engine.compiler.lowering.copying import as_words
from engine.compiler.lowering.declining import COMPLEX64, FLOAT32, NotLoweredError
from engine.compiler.lowering.fusion import alone
from engine.compiler.lowering.result import Result
from engine.compiler.lowering.rules.elementwise.composing import derived
from engine.compiler.lowering.rules.products.linear import linear_step, rows_as_image
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import KernelStep, Made
from engine.compiler.storage import View, row_major
from engine.layers.definition.layer import Layer
from engine.layers.signal.fourier import OneAxis, SeveralAxes
from engine.tensor import Array

# Elements of a matrix that few rows, and that many rows may be multiplied by: a transform by halves takes n log n.
FEW_PRODUCTS, MOST_PRODUCTS = 2**16, 2**19
MANY_ROWS = 16


@dataclass(frozen=True, slots=True)
class _Stage:
    """A transform along one axis, to so many points."""

    axis: int
    points: int
    transform: Callable[..., Any]
    norm: str | None

    def matrix(self, size: int, is_complex: bool) -> Array:
        """What becomes of a 1 in each of so many places, and of an i where there are imaginary parts; in float64."""
        units = np.eye(size)
        rows = np.stack([units + 0j, 1j * units], 1).reshape(2 * size, size) if is_complex else units
        return np.asarray(self.transform(rows, self.points, -1, self.norm))


@kernels_for(*OneAxis.__subclasses__(), *SeveralAxes.__subclasses__())
def lower_transform(context: Context) -> Made:
    """A transform along one axis or several."""
    layer, x = context.layer(Layer), context.argument(0)
    assert isinstance(layer, OneAxis | SeveralAxes)
    if not isinstance(x, View) or x.dtype not in (FLOAT32, COMPLEX64) or not x.phantom.size:
        raise NotLoweredError("there are kernels for transforms of float32 and of complex numbers of it alone")
    steps: list[KernelStep] = []
    for stage in _stages(layer, x.shape):
        x = _transformed(context, x, stage, steps)
    return context.made(x, *steps)


def _stages(layer: OneAxis | SeveralAxes, shape: tuple[int, ...]) -> Iterator[_Stage]:
    """One axis after the other, real points first and last."""
    axes, points = layer.along(shape)
    *others, last = [
        _Stage(axis, count, layer.computes(number == len(axes) - 1), layer.norm)
        for number, (axis, count) in enumerate(zip(axes, points, strict=True))
    ]
    yield from (last, *others) if layer.begins_with_last else (*others, last)


def _transformed(context: Context, x: View, stage: _Stage, steps: list[KernelStep]) -> View:
    """What a transform makes of a tensor, as the product of its rows with a matrix."""
    moved = derived(x, x.phantom.moveaxis(stage.axis, -1))
    size, count = moved.shape[-1], moved.phantom.size // moved.shape[-1]
    if 2 * size * stage.points > (MOST_PRODUCTS if count >= MANY_ROWS else FEW_PRODUCTS):
        raise NotLoweredError("numpy transforms so many points faster")
    matrix = stage.matrix(size, x.dtype == COMPLEX64)
    dtype = COMPLEX64 if matrix.dtype.kind == "c" else FLOAT32
    weight = np.ascontiguousarray(_as_floats(matrix).T, np.float32)
    words = as_words(moved)
    rows, copies = context.rows(words, len(words.shape) - len(moved.shape) + 1)
    target = row_major((*moved.shape[:-1], matrix.shape[-1]), dtype)
    flat = as_words(target)
    lines = derived(flat, flat.phantom.reshape(count, len(weight)))
    result = Result.seen(alone(context.op), lines, rows_as_image, context.lowering.alarm)
    steps += [*copies, linear_step(context, result, rows, weight, None)]
    return derived(target, target.phantom.moveaxis(-1, stage.axis))


def _as_floats(matrix: Array) -> Array:
    """Columns of complex numbers as two each."""
    return matrix.view(np.float64) if matrix.dtype.kind == "c" else matrix
