"""Window functions, and the frequencies that the bins of a Fourier transform stand for."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from engine.errors import ParameterError
from engine.layers.creation.creation import FLOAT32
from engine.layers.definition.layer import Layer
from engine.layers.definition.overload import overload
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
    """0.54 - 0.46 cos(2 pi i / n)."""

    coefficients = (0.54, 0.46)


class BlackmanWindow(HannWindow):
    """0.42 - 0.5 cos(2 pi i / n) + 0.08 cos(4 pi i / n)."""

    coefficients = (0.42, 0.5, 0.08)


_PLACED = "dtype layout device pin_memory"
_SHORT, _LONG = f"window_length {_PLACED}", f"window_length periodic {_PLACED}"

overload("aten::hann_window", (HannWindow, _SHORT), (HannWindow, _LONG))
overload("aten::hamming_window", (HammingWindow, _SHORT), (HammingWindow, _LONG))
overload("aten::blackman_window", (BlackmanWindow, _SHORT), (BlackmanWindow, _LONG))


class FftFreq(Layer):
    """0, 1, ..., (n-1)//2, -(n//2), ..., -1, each divided by n * d."""

    n: int
    d: float = 1.0
    dtype: DType | None = None

    def __post_init__(self) -> None:
        if self.n < 1 or self.d == 0:
            raise ParameterError(
                "invalid frequencies", found=f"n {self.n} and d {self.d}", expected="n >= 1 and d != 0"
            )

    def infer(self) -> TensorSpec:
        return TensorSpec((self.n,), self.dtype or FLOAT32)

    def forward(self) -> Array:
        return cast(np.fft.fftfreq(self.n, self.d), self.dtype or FLOAT32)


class RfftFreq(FftFreq):
    """0, 1, ..., n//2, each divided by n * d."""

    def infer(self) -> TensorSpec:
        return TensorSpec((self.n // 2 + 1,), self.dtype or FLOAT32)

    def forward(self) -> Array:
        return cast(np.fft.rfftfreq(self.n, self.d), self.dtype or FLOAT32)


overload("aten::fft_fftfreq", (FftFreq, "n d dtype layout device pin_memory"))
overload("aten::fft_rfftfreq", (RfftFreq, "n d dtype layout device pin_memory"))
