"""The frequencies a Fourier transform's places stand for."""

from __future__ import annotations

import numpy as np

from engine.errors import ParameterError
from engine.layers.creation.creation import FLOAT32
from engine.layers.definition.layer import Layer
from engine.layers.definition.overload import overload
from engine.promotion import cast
from engine.tensor import Array, DType, TensorSpec


class FftFreq(Layer):
    """0, 1, ..., (n-1)//2, -(n//2), ..., -1, each divided by n * d."""

    n: int
    d: float = 1.0
    dtype: DType | None = None

    def __post_init__(self) -> None:
        if self.n < 1 or self.d == 0:
            raise ParameterError(
                "no such frequencies", found=f"n {self.n} and d {self.d}", expected="n >= 1 and d != 0"
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
