"""Interpolation along one axis: the source elements of each new element (taps) and their weights.

Coordinates are computed in float32 (in float64 for float64 inputs), like in PyTorch: another precision would select
other elements. ``step`` is the distance of two new elements on the old axis.

Source: aten/src/ATen/native/UpSample.h and native/cpu/UpSampleKernel.cpp.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from engine.cancellation import cancellable
from engine.errors import ShapeError
from engine.tensor import Array, DType


@dataclass(frozen=True, slots=True, kw_only=True)
class Taps:
    """Source elements of each new element.

    Args:
        indices: (taps, new size) elements of the old axis.
        weights: (taps, new size), None if the only tap is copied.
        used: (taps, new size), if some elements have fewer taps than others.
    """

    indices: Array
    weights: Array | None = None
    used: Array | None = None


def interpolate_axis(x: Array, axis: int, taps: Taps) -> Array:
    """Return ``x`` with an axis interpolated."""
    if taps.weights is None:
        picked: Array = x.take(taps.indices[0], axis)
        return picked
    shape = (-1, *(1,) * (x.ndim - 1 - axis))
    total: Array | None = None
    for tap, (index, weight) in enumerate(cancellable(zip(taps.indices, taps.weights, strict=True))):
        term = x.take(index, axis) * weight.reshape(shape)
        if taps.used is not None:
            term = np.where(taps.used[tap].reshape(shape), term, 0)
        total = term if total is None else total + term
    return x if total is None else total


def interpolate_axis_uint8(x: Array, axis: int, taps: Taps) -> Array:
    """Interpolate uint8 in PyTorch's integer arithmetic: weights of 16 bits, every axis rounded."""
    if taps.weights is None:
        return interpolate_axis(x, axis, taps)
    weights = _merged(taps.indices, taps.weights)
    largest = float(weights.max())
    bits = next(bits for bits in range(23) if bits == 22 or int(0.5 + largest * (2 << bits)) >= 1 << 15)
    whole = np.trunc(weights * (1 << bits) + np.copysign(0.5, weights)).astype(np.int64)
    total = interpolate_axis(x.astype(np.int64), axis, Taps(indices=taps.indices, weights=whole))
    rounded: Array = np.clip((total + (1 << bits >> 1)) >> bits, 0, 255).astype(np.uint8)
    return rounded


def _merged(indices: Array, weights: Array) -> Array:
    """Return weights with those of equal neighbouring indices, taps clamped to the border, summed on one of them."""
    weights = weights.copy()
    for tap in range(len(weights) - 1):
        same = indices[tap] == indices[tap + 1]
        weights[tap + 1] += np.where(same, weights[tap], 0)
        weights[tap] = np.where(same, 0, weights[tap])
    return weights


def find_step(size: int, count: int, scale: float | None, align_corners: bool, dtype: DType) -> Array:
    """Return the step that aligns the first and last elements (align_corners), else the given or implied one."""
    if align_corners:
        return _number(size - 1, dtype) / _number(count - 1, dtype) if count > 1 else _number(0, dtype)
    if scale is not None:
        return _number(1 / scale, dtype)
    return _number(size, dtype) / _number(count, dtype)


def _number(value: float, dtype: DType) -> Array:
    return np.asarray(value, dtype)


def nearest(size: int, count: int, step: Array, align_corners: bool = False) -> Taps:
    """Select element floor(i*step)."""
    return Taps(indices=_floor(np.arange(count, dtype=step.dtype) * step, size)[None])


def nearest_exact(size: int, count: int, step: Array, align_corners: bool = False) -> Taps:
    """Select element floor((i + 0.5)*step)."""
    return Taps(indices=_floor((np.arange(count, dtype=step.dtype) + step.dtype.type(0.5)) * step, size)[None])


def linear(size: int, count: int, step: Array, align_corners: bool) -> Taps:
    """Interpolate between the two neighbours."""
    position = np.maximum(_positions(count, step, align_corners), step.dtype.type(0))
    lower = _floor(position, size)
    fraction = np.clip(position - lower.astype(step.dtype), 0, 1)
    return Taps(indices=np.stack([lower, np.minimum(lower + 1, size - 1)]), weights=np.stack([1 - fraction, fraction]))


def cubic(size: int, count: int, step: Array, align_corners: bool) -> Taps:
    """Interpolate between four neighbours, by Keys' kernel of a = -0.75; taps outside are clamped to the border."""
    position = _positions(count, step, align_corners)
    lower = np.minimum(np.floor(position).astype(np.int64), size - 1)
    fraction = np.clip(position - lower.astype(step.dtype), 0, 1)
    taps = np.arange(-1, 3)[:, None]
    weights = keys_kernel(fraction - taps.astype(step.dtype), -0.75)
    return Taps(indices=np.clip(lower + taps, 0, size - 1), weights=weights)


def antialiased_linear(size: int, count: int, step: Array, align_corners: bool) -> Taps:
    """Interpolate by a triangle as wide as the distance of new elements."""
    return _antialiased(size, count, step, triangle_kernel, 1)


def antialiased_cubic(size: int, count: int, step: Array, align_corners: bool) -> Taps:
    """Interpolate by Keys' kernel of a = -0.5, stretched to the distance of new elements."""
    return _antialiased(size, count, step, lambda x: keys_kernel(x, -0.5), 2)


def _antialiased(size: int, count: int, step: Array, kernel: Callable[[Array], Array], reach: int) -> Taps:
    one, half = step.dtype.type(1), step.dtype.type(0.5)
    stretch = np.maximum(step, one)
    support = stretch * step.dtype.type(reach)
    center = step * (np.arange(count, dtype=step.dtype) + half)
    first = np.maximum((center - support + half).astype(np.int64), 0)
    length = np.minimum((center + support + half).astype(np.int64), size) - first
    length = np.clip(length, 0, 2 * math.ceil(support) + 1)
    if not length.any():
        raise ShapeError("the new elements have no source elements", found=f"a distance of {step}")
    tap = np.arange(int(length.max()))[:, None]
    used = tap < length
    places = (tap + first).astype(step.dtype)
    weights = np.where(used, kernel((places - center + half) * (one / stretch)), 0)
    total = weights.sum(axis=0)
    weights = weights / np.where(total == 0, one, total)
    return Taps(indices=np.minimum(tap + first, size - 1), weights=weights.astype(step.dtype), used=used)


def triangle_kernel(x: Array) -> Array:
    """Compute 1 - |x| where that is positive, else 0."""
    return np.asarray(np.maximum(1 - np.abs(x), 0))


def keys_kernel(x: Array, a: float) -> Array:
    """Compute Keys' cubic convolution kernel.

    (a + 2)|x|^3 - (a + 3)|x|^2 + 1 for |x| <= 1, a|x|^3 - 5a|x|^2 + 8a|x| - 4a for |x| < 2, else 0; NaN for NaN.
    """
    x = np.abs(x)
    inner = ((a + 2) * x - (a + 3)) * x * x + 1
    outer = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, inner, np.where(x >= 2, 0, outer)).astype(x.dtype, copy=False)


def _positions(count: int, step: Array, align_corners: bool) -> Array:
    half = step.dtype.type(0 if align_corners else 0.5)
    return np.asarray((np.arange(count, dtype=step.dtype) + half) * step - half)


def _floor(position: Array, size: int) -> Array:
    return np.minimum(np.floor(position).astype(np.int64), size - 1)


Kernel: TypeAlias = Callable[[int, int, Array, bool], Taps]

KERNELS: Final[dict[str, Kernel]] = {
    "nearest": nearest,
    "nearest-exact": nearest_exact,
    "linear": linear,
    "bilinear": linear,
    "trilinear": linear,
    "bicubic": cubic,
}
ANTIALIASED: Final[dict[str, Kernel]] = {"bilinear": antialiased_linear, "bicubic": antialiased_cubic}
