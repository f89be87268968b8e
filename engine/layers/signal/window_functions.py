"""Windows that fade a signal in and out."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from engine.errors import ParameterError
from engine.layers.creation.creation import FLOAT32
from engine.layers.definition.layer import Layer
from engine.layers.definition.overload import Overloaded
from engine.layers.definition.registry import register
from engine.promotion import cast
from engine.tensor import Array, DType, TensorSpec


class HannWindow(Layer):
    """0.5 - 0.5 cos(2 pi i / n), n one less than the length unless periodic."""

    coefficients: ClassVar[tuple[float, ...]] = (0.5, 0.5)

    window_length: int
    periodic: bool = True
    dtype: DType | None = None

    def __post_init__(self) -> None:
        if self.window_length < 0:
            raise ParameterError("window_length must not be negative", found=self.window_length)

    def infer(self) -> TensorSpec:
        return TensorSpec((self.window_length,), self.dtype or FLOAT32)

    def forward(self) -> Array:
        if self.window_length == 1:
            return np.ones(1, self.dtype or FLOAT32)
        turns = 2 * math.pi * np.arange(self.window_length) / max(self.window_length - (not self.periodic), 1)
        terms = [(-1) ** k * factor * np.cos(k * turns) for k, factor in enumerate(self.coefficients)]
        return cast(np.asarray(sum(terms)), self.dtype or FLOAT32)


class HammingWindow(HannWindow):
    """0.54 - 0.46 cos(2 pi i / n)"""

    coefficients = (0.54, 0.46)


class BlackmanWindow(HannWindow):
    """0.42 - 0.5 cos(2 pi i / n) + 0.08 cos(4 pi i / n)"""

    coefficients = (0.42, 0.5, 0.08)


_SHORT, _LONG = "window_length dtype . . .", "window_length periodic dtype . . ."


@register("aten::hann_window")
class RawHannWindow(Overloaded):
    """hann_window(length, dtype, ...) or hann_window(length, periodic, dtype, ...) with layout, device, pin_memory."""

    schemas = {5: (HannWindow, _SHORT), 6: (HannWindow, _LONG)}


@register("aten::hamming_window")
class RawHammingWindow(Overloaded):
    """hamming_window(length, dtype, ...) or hamming_window(length, periodic, dtype, ...)."""

    schemas = {5: (HammingWindow, _SHORT), 6: (HammingWindow, _LONG)}


@register("aten::blackman_window")
class RawBlackmanWindow(Overloaded):
    """blackman_window(length, dtype, ...) or blackman_window(length, periodic, dtype, ...)."""

    schemas = {5: (BlackmanWindow, _SHORT), 6: (BlackmanWindow, _LONG)}
