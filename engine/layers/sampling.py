"""Values of an image at fractional positions.

Images are (N, C, *S); positions are one array (N, *P) an axis, in elements from the first one's centre.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np

from engine.layers.interpolation import keys_kernel
from engine.tensor import Array

Bound = Callable[[Array, int], Array]
"""Moves positions on an axis of a size back onto it."""


def sample_nearest(x: Array, positions: Sequence[Array]) -> Array:
    """The nearest elements, halves to the even one; 0 outside.  -> (N, C, *P)"""
    return gather(x, [np.rint(position) for position in positions])


def sample_linear(x: Array, positions: Sequence[Array]) -> Array:
    """Between the two neighbours on each axis; 0 outside.  -> (N, C, *P)"""
    lower = [np.floor(position) for position in positions]
    upper_weight = [position - floor for position, floor in zip(positions, lower, strict=True)]
    total: Array | None = None
    for corner in product((0, 1), repeat=len(positions)):
        weights = [w if up else 1 - w for w, up in zip(upper_weight, corner, strict=True)]
        value = gather(x, [floor + up for floor, up in zip(lower, corner, strict=True)])
        value *= math.prod(weights[1:], start=weights[0])[:, None]
        total = value if total is None else np.add(total, value, out=total)
    return x if total is None else total


def sample_cubic(x: Array, positions: Sequence[Array], bound: Bound) -> Array:
    """Between four neighbours on each axis, with Keys' kernel of a = -0.75; each tap is bounded.  -> (N, C, *P)"""
    lower = [np.floor(position) for position in positions]
    total = np.zeros((len(x), x.shape[1], *positions[0].shape[1:]), x.dtype)
    for taps in product(range(-1, 3), repeat=len(positions)):
        places = [floor + tap for floor, tap in zip(lower, taps, strict=True)]
        weights = [keys_kernel(place - position, -0.75) for place, position in zip(places, positions, strict=True)]
        bounded = [bound(place, size) for place, size in zip(places, x.shape[2:], strict=True)]
        total += gather(x, bounded) * math.prod(weights[1:], start=weights[0])[:, None]
    return total


def gather(x: Array, places: Sequence[Array]) -> Array:
    """Elements at whole positions, 0 outside the image (and where a position is NaN).  -> (N, C, *P)"""
    sizes = x.shape[2:]
    inside = np.ones(places[0].shape, np.bool_)
    index = np.zeros(places[0].shape, np.int64)
    for place, size in zip(places, sizes, strict=True):
        on_axis = (place >= 0) & (place < size)
        inside &= on_axis
        index = index * size + np.where(on_axis, place, 0).astype(np.int64)
    flat = x.reshape(*x.shape[:2], math.prod(sizes))
    values = np.take_along_axis(flat, index.reshape(len(x), 1, math.prod(index.shape[1:])), axis=2)
    values = values.reshape(*x.shape[:2], *index.shape[1:])
    return np.where(inside[:, None], values, x.dtype.type(0))
