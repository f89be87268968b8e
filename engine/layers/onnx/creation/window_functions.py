"""Window functions, and the weights of mel bins."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.onnx.operands.constants import needed, real_number, whole_number
from engine.layers.onnx.operands.dtypes import onnx_dtype
from engine.limits import check_size
from engine.promotion import cast
from engine.tensor import Array, TensorSpec


class _Window(Layer):
    """Base of windows.

    Parameters:
        periodic: one period, without its last element; else symmetric.
    """

    output_datatype: int = 1
    periodic: bool = True

    def infer(self, size: Any) -> TensorSpec:
        count = whole_number(size, "size")
        if count is not None and count < 0:
            raise ShapeError("size is negative", found=count)
        return TensorSpec((count,), onnx_dtype(self.output_datatype))

    def forward(self, size: Any) -> Array:
        count = needed(whole_number(size, "size"), "size")
        spec = self.infer(count)
        check_size((count,), np.dtype(np.complex128), "the window")
        period = count if self.periodic else count - 1
        angle = 2 * np.pi * np.arange(count) / max(period, 1)
        return cast(np.asarray(self.shape(angle)), spec.dtype)

    def shape(self, angle: Array) -> Array:
        """The window at each angle of one period."""
        raise NotImplementedError


@register("HannWindow", positional=("size",))
class OnnxHannWindow(_Window):
    """0.5 - 0.5 * cos(angle)"""

    def shape(self, angle: Array) -> Array:
        return 0.5 - 0.5 * np.cos(angle)


@register("HammingWindow", positional=("size",))
class OnnxHammingWindow(_Window):
    """25/46 - 21/46 * cos(angle)"""

    def shape(self, angle: Array) -> Array:
        return 25 / 46 - 21 / 46 * np.cos(angle)


@register("BlackmanWindow", positional=("size",))
class OnnxBlackmanWindow(_Window):
    """0.42 - 0.5 * cos(angle) + 0.08 * cos(2 * angle)"""

    def shape(self, angle: Array) -> Array:
        return np.asarray(0.42 - 0.5 * np.cos(angle) + 0.08 * np.cos(2 * angle))


_MEL = ("num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz")


@register("MelWeightMatrix", positional=_MEL)
class MelWeightMatrix(Layer):
    """Weights that gather the bins of a spectrum into triangles of equal width on the mel scale.

    Shapes:
        (dft_length // 2 + 1, num_mel_bins)
    """

    output_datatype: int = 1

    def infer(self, num_mel_bins: Any, dft_length: Any, *rate_and_edges: Any) -> TensorSpec:
        bins, length = whole_number(num_mel_bins, "num_mel_bins"), whole_number(dft_length, "dft_length")
        if (bins is not None and bins < 1) or (length is not None and length < 1):
            raise ShapeError("sizes must be positive", found=f"{bins} mel bins of {length} elements")
        rows = None if length is None else length // 2 + 1
        return TensorSpec((rows, bins), onnx_dtype(self.output_datatype))

    def forward(
        self, num_mel_bins: Any, dft_length: Any, sample_rate: Any, lower_edge_hertz: Any, upper_edge_hertz: Any
    ) -> Array:
        bins = needed(whole_number(num_mel_bins, "num_mel_bins"), "num_mel_bins")
        length = needed(whole_number(dft_length, "dft_length"), "dft_length")
        check_size((length // 2 + 1, bins), np.dtype(np.float64), "the matrix")
        rate = needed(whole_number(sample_rate, "sample_rate"), "sample_rate")
        spec = self.infer(bins, length)
        low, high = (_mel(real_number(each, 0, "edge")) for each in (lower_edge_hertz, upper_edge_hertz))
        if not (np.isfinite(low) and np.isfinite(high)) or rate < 1:
            raise ParameterError("edges do not fit", found=f"{low} to {high} mel at {rate} Hz")
        step = (high - low) / (bins + 2)
        edges = 700 * (np.power(10, (low + np.arange(bins + 2) * step) / 2595) - 1)
        places = np.clip(np.floor((length + 1) * edges / rate), 0, length).astype(np.int64)
        start, centre, end = places[:-2], places[1:-1], places[2:]
        row = np.arange(length // 2 + 1)[:, None]
        with np.errstate(all="ignore"):
            rising = np.where(centre == start, row == centre, (row - start) / (centre - start))
            falling = (end - row) / (end - centre)
        weights = np.where((row >= start) & (row <= centre), rising, 0.0)
        weights = np.where((row >= centre) & (row < end), falling, weights)
        return cast(np.asarray(weights), spec.dtype)


def _mel(hertz: float) -> float:
    with np.errstate(all="ignore"):
        return float(2595 * np.log10(1 + hertz / 700))
