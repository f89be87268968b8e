"""Streaming histograms of operands, and the range of values that is best to quantise."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from engine.tensor import Array

LEVELS: Final = 255
"""Steps between the smallest and the largest value of a byte."""

# Bins on each side of zero. Doubling the limit halves their resolution, so about 1,024 of them are in use.
_BINS: Final = 2048
# Values of one tensor that are counted; the extremes are taken of all.
_COUNTED: Final = 1 << 16
_SHARES: Final = np.geomspace(1 / 64, 1, 49)


class Affine(NamedTuple):
    """Scale and zero point: a byte q represents (q - zero_point) * scale."""

    scale: np.float32
    zero_point: np.uint8


class Histogram:
    """Histogram of all values of one operand, in memory that does not grow with the number of samples.

    Bins are equally wide and symmetric about zero. When a value exceeds the limit, the limit doubles and neighbouring
    bins are merged.

    Attributes:
        is_empty: whether there was no value.
    """

    def __init__(self) -> None:
        self._limit = 0.0
        self._counts = np.zeros(2 * _BINS, np.int64)
        self.is_empty = True
        self.low = 0.0
        self.high = 0.0

    def add(self, values: Array) -> None:
        """Count the values of one tensor, which are finite."""
        if not values.size:
            return
        self.is_empty = False
        low, high = float(values.min()), float(values.max())
        self.low, self.high = min(self.low, low), max(self.high, high)
        self._reach(max(-low, high))
        if self._limit:
            flat = values.reshape(-1)[:: max(1, values.size // _COUNTED)]
            shares = np.divide(flat, self._limit, dtype=np.float64)  # float32 has no inverse of small limits
            bins = np.minimum((shares * _BINS + _BINS).astype(np.int64), 2 * _BINS - 1)
            self._counts += np.bincount(bins, minlength=2 * _BINS)

    def affine(self) -> Affine:
        """Return the scale and zero point with the least expected squared error; zero is represented exactly."""
        largest = max(-self.low, self.high)
        if not largest:
            return Affine(np.float32(1), np.uint8(0))
        ends = [(max(self.low, -share * largest), min(self.high, share * largest)) for share in _SHARES]
        low, high = min(ends, key=lambda end: self._squared_error(*end))
        scale = np.float32((high - low) / LEVELS)
        if not scale:
            return Affine(np.float32(1), np.uint8(0))
        return Affine(scale, np.uint8(np.clip(np.rint(-low / scale), 0, LEVELS)))

    def _reach(self, largest: float) -> None:
        """Raise the limit to the largest magnitude at least."""
        if not self._limit:
            self._limit = largest
        while self._limit < largest:
            merged = self._counts.reshape(-1, 2).sum(1)
            self._counts[:] = 0
            self._counts[_BINS // 2 : _BINS // 2 + _BINS] = merged
            self._limit *= 2

    def _squared_error(self, low: float, high: float) -> float:
        """Return the sum of squared errors when values between ``low`` and ``high`` are rounded to bytes."""
        width = self._limit / _BINS
        centres = (np.arange(2 * _BINS) - _BINS + 0.5) * width
        beyond = np.maximum(np.maximum(low - centres, centres - high), 0)
        rounding = ((high - low) / LEVELS) ** 2 / 12
        return float((self._counts * np.where(beyond > 0, beyond**2, rounding)).sum())
