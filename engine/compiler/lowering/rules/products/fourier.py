"""Discrete Fourier transforms: a product with the transform of the unit vectors.

A transform is linear in the real and imaginary parts, which are interleaved. Its matrix is what the layer returns for
vectors that are 1 or i in one place; truncation and padding are part of it. For short transforms this is faster than an
FFT; numpy computes long ones.
"""

from __future__ import annotations

import numpy as np

from engine.compiler.lowering.context import Context
from engine.compiler.lowering.fusion import Result, unfused
from engine.compiler.lowering.rules.products.linear import linear_step, rows_as_image
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import COMPLEX64, Lowered, NotLoweredError, as_words, derived
from engine.compiler.storage import FLOAT32, View, row_major
from engine.layers.signal.fourier import OneAxis
from engine.tensor import Array

# Largest matrix for few rows and for many rows; beyond that an FFT, which takes n log n, is faster.
FEW_PRODUCTS, MAX_PRODUCTS = 2**16, 2**19
MANY_ROWS = 16


@kernels_for(OneAxis)
def lower_transform(context: Context) -> Lowered:
    """Lower a transform along one axis, as the product of its rows with a matrix."""
    layer, x = context.layer(OneAxis), context.argument(0)
    if not isinstance(x, View) or x.dtype not in (FLOAT32, COMPLEX64) or not x.meta.size:
        raise NotLoweredError("there are transforms only for float32 and complex64")
    axis, points = layer.along(x.shape)
    moved = derived(x, x.meta.moveaxis(axis, -1))
    size, count = moved.shape[-1], moved.meta.size // moved.shape[-1]
    if 2 * size * points > (MAX_PRODUCTS if count >= MANY_ROWS else FEW_PRODUCTS):
        raise NotLoweredError("numpy is faster for so many points")
    # numpy takes no symbolic size: the size becomes a guard
    matrix = layer.matrix(size, int(points), x.dtype == COMPLEX64)
    dtype = COMPLEX64 if matrix.dtype.kind == "c" else FLOAT32
    weight = np.ascontiguousarray(_as_floats(matrix).T, np.float32)
    words = as_words(moved)
    rows, copies = context.rows(words, len(words.shape) - len(moved.shape) + 1)
    target = row_major((*moved.shape[:-1], matrix.shape[-1]), dtype)
    flat = as_words(target)
    lines = derived(flat, flat.meta.reshape(count, len(weight)))
    result = Result.of(unfused(context.op), lines, rows_as_image, context.lowering.fault_flag)
    step = linear_step(context, result, rows, weight, None)
    return context.lowered(derived(target, target.meta.moveaxis(-1, axis)), *copies, step)


def _as_floats(matrix: Array) -> Array:
    """Return columns of complex numbers as two columns each."""
    return matrix.view(np.float64) if matrix.dtype.kind == "c" else matrix
