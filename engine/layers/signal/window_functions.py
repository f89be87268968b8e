"""Window functions, and the frequencies that the bins of a Fourier transform stand for."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from engine.errors import ParameterError
from engine.layers.creation.creation import FLOAT32
from engine.layers.definition.layer import Layer
from engine.layers.definition.overload import overload
from engine.promotion import cast
from engine.tensor import Array, DType, TensorSpec

_PLACED = "dtype layout device pin_memory"
_COEFFICIENTS = {"hann": (0.5, 0.5), "hamming": (0.54, 0.46), "blackman": (0.42, 0.5, 0.08)}


class CosineWindow(Layer):
    """c[0] - c[1] cos(2 pi i / n) + c[2] cos(4 pi i / n), n one less than the length unless periodic."""

    coefficients: tuple[float, ...]
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


for _name, _factors in _COEFFICIENTS.items():
    _window = partial(CosineWindow, coefficients=_factors)
    overload(
        f"aten::{_name}_window",
        (_window, f"window_length {_PLACED}"),
        (_window, f"window_length periodic {_PLACED}"),
    )


class FftFreq(Layer):
    """0, 1, ..., (n-1)//2, -(n//2), ..., -1, each divided by n * d; or 0, 1, ..., n//2 of a real signal."""

    is_real: bool
    n: int
    d: float = 1.0
    dtype: DType | None = None

    def __post_init__(self) -> None:
        if self.n < 1 or self.d == 0:
            raise ParameterError(
                "invalid frequencies", found=f"n {self.n} and d {self.d}", expected="n >= 1 and d != 0"
            )

    def infer(self) -> TensorSpec:
        return TensorSpec((self.n // 2 + 1 if self.is_real else self.n,), self.dtype or FLOAT32)

    def forward(self) -> Array:
        compute = np.fft.rfftfreq if self.is_real else np.fft.fftfreq
        return cast(compute(self.n, self.d), self.dtype or FLOAT32)


overload("aten::fft_fftfreq", (partial(FftFreq, is_real=False), f"n d {_PLACED}"))
overload("aten::fft_rfftfreq", (partial(FftFreq, is_real=True), f"n d {_PLACED}"))
