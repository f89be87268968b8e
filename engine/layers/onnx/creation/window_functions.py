"""Mel filter weights."""

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
