"""Values of an image at fractional positions.

Images are (N, C, *S); positions are one array (N, *P) an axis, in elements from the first one's centre.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np

from engine.layers.vision.taps import keys_kernel
from engine.tensor import Array

Bound = Callable[[Array, int], Array]
"""Function that moves positions on an axis of a size back onto it."""


def sample_nearest(x: Array, positions: Sequence[Array]) -> Array:
    """Return the nearest elements (N, C, *P), halves to the even one; 0 outside."""
    return _channels_second(Elements(x).at([np.rint(position) for position in positions]))


def sample_linear(x: Array, positions: Sequence[Array]) -> Array:
    """Interpolate between the two neighbours on each axis, 0 outside; return (N, C, *P)."""
    elements, lower = Elements(x), [np.floor(position) for position in positions]
    upper_weight = [position - floor for position, floor in zip(positions, lower, strict=True)]
    total: Array | None = None
    for corner in product((0, 1), repeat=len(positions)):
        weights = [w if up else 1 - w for w, up in zip(upper_weight, corner, strict=True)]
        value = elements.at([floor + up for floor, up in zip(lower, corner, strict=True)])
        value *= math.prod(weights[1:], start=weights[0])[..., None]
        total = value if total is None else np.add(total, value, out=total)
    return x if total is None else _channels_second(total)


def sample_cubic(x: Array, positions: Sequence[Array], bound: Bound) -> Array:
    """Interpolate between four neighbours on each axis, Keys' kernel of a = -0.75, bounded taps; return (N, C, *P)."""
    elements, lower = Elements(x), [np.floor(position) for position in positions]
    total = np.zeros((*positions[0].shape, x.shape[1]), x.dtype)
    for taps in product(range(-1, 3), repeat=len(positions)):
        places = [floor + tap for floor, tap in zip(lower, taps, strict=True)]
        weights = [keys_kernel(place - position, -0.75) for place, position in zip(places, positions, strict=True)]
        bounded = [bound(place, size) for place, size in zip(places, x.shape[2:], strict=True)]
        total += elements.at(bounded) * math.prod(weights[1:], start=weights[0])[..., None]
    return _channels_second(total)


class Elements:
    """Elements of images by their positions; channels are contiguous, so that one look-up reads all of a position.

    Args:
        x: (N, C, *S).
    """

    def __init__(self, x: Array) -> None:
        n, channels, *self._sizes = x.shape
        self._count = math.prod(self._sizes)
        rows = np.zeros((n, self._count + 1, channels), x.dtype)  # the last row is for positions outside
        rows[:, :-1] = x.reshape(n, channels, self._count).swapaxes(1, 2)
        self._rows = rows.reshape(-1, channels)

    def at(self, places: Sequence[Array]) -> Array:
        """Return the elements (N, *P, C) at whole positions, 0 outside the image and where a position is NaN."""
        inside = np.ones(places[0].shape, np.bool_)
        index = np.zeros(places[0].shape, np.int64)
        for place, size in zip(places, self._sizes, strict=True):
            on_axis = (place >= 0) & (place < size)
            inside &= on_axis
            index = index * size + np.where(on_axis, place, 0).astype(np.int64)
        image = np.arange(len(index)).reshape(-1, *[1] * (index.ndim - 1)) * (self._count + 1)
        return np.asarray(self._rows.take(np.where(inside, index, self._count) + image, axis=0))


def _channels_second(values: Array) -> Array:
    return np.ascontiguousarray(np.moveaxis(values, -1, 1))
