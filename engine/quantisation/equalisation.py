"""Scale factors that make the channels of a layer's input equally large, and go into its weights instead.

An operand has one scale, so channels with small values get few of the 256 levels. Dividing each channel by a factor
before rounding, and multiplying the weights of that channel by it, leaves the product as it is and gives small channels
more levels (SmoothQuant; between two convolutions it is cross-layer equalisation). Large weights cost levels of the
other weights of their output, so the share of the range that moves is chosen for the least expected error.

Source:
    Xiao et al.: SmoothQuant, ICML 2023. Nagel et al.: Data-free quantization through weight equalization, ICCV 2019.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from engine.quantisation.histogram import LEVELS
from engine.quantisation.layers import LARGEST, QuantisableLayer, QuantisableProduct
from engine.tensor import Array

RANGED: Final = 16
"""Samples that the ranges of channels are taken from."""

# Powers of a channel's range that are tried as its factor.
_POWERS: Final = (0.25, 0.5, 0.75, 1.0)
# Factors are used where they reduce the expected squared error to this share.
_WORTH: Final = 0.5
# Least range of a channel relative to the largest.
_LEAST: Final = 1e-3
# A channel is divided only if most runs reach this share of its range: one that was nearly always zero in the samples
# would be clipped wherever it is not.
_USUAL: Final = 0.25


def equalising_factors(layers: Sequence[QuantisableLayer], runs: Iterable[Mapping[str, Array]]) -> dict[str, Array]:
    """Return what the channels of operands should be divided by, for operands where that is worth it.

    Args:
        layers: layers that may be quantised.
        runs: values of their operands in some runs.
    """
    products = [layer for layer in layers if isinstance(layer, QuantisableProduct)]
    ranges = {
        name: ChannelRanges([layer for layer in products if layer.input == name])
        for name in dict.fromkeys(layer.input for layer in products)
    }
    for values in runs:
        for name, each in ranges.items():
            each.add(values[name])
    found = {name: each.factors() for name, each in ranges.items()}
    return {name: each for name, each in found.items() if each is not None}


class ChannelRanges:
    """Smallest value, largest value and mean square of each channel of one operand, over some runs.

    Args:
        layers: the layers that read the operand.
    """

    def __init__(self, layers: Sequence[QuantisableProduct]) -> None:
        self._layers = layers
        self._low, self._high, self._squares = np.zeros((3, 1))
        self._largest: list[Array] = []

    def add(self, values: Array) -> None:
        """Take the values of one run into account."""
        if values.size:
            axis = self._layers[0].channel_axis
            rows = np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)
            low, high = rows.min(1), rows.max(1)
            self._largest.append(np.maximum(-low, high))
            self._low, self._high = np.minimum(self._low, low), np.maximum(self._high, high)
            self._squares = self._squares + np.square(rows, dtype=np.float64).mean(1)

    def factors(self) -> Array | None:
        """Return the factor of each channel, shaped like an input; None if equalising is not worth it."""
        axes = {layer.channel_axis for layer in self._layers}
        largest = np.maximum(-self._low, self._high)
        if len(axes) > 1 or not 0 < largest.max() < np.inf:
            return None
        is_usual = np.median(self._largest, axis=0) >= _USUAL * largest
        ranges = np.where(is_usual, np.maximum(largest / largest.max(), _LEAST), 1)
        exact = self._errors(np.ones_like(ranges))
        if not exact.all():  # weights that are all zero
            return None
        found = {power: float(np.mean(self._errors(ranges**power) / exact)) for power in _POWERS}
        best = min(found, key=lambda power: found[power])
        if found[best] > _WORTH:
            return None
        factors: Array = (ranges**best).astype(np.float32)
        return factors.reshape(-1, *[1] * self._layers[0].spatial_rank)

    def _errors(self, factors: Array) -> Array:
        """Return the expected squared error of each layer's output, the channels of its input divided by factors."""
        step = ((self._high / factors).max() - (self._low / factors).min()) / LEVELS
        squares = self._squares / len(self._largest)
        return np.array([_expected_error(layer, factors, step, squares) for layer in self._layers])


def _expected_error(layer: QuantisableProduct, factors: Array, step: float, squares: Array) -> float:
    """Return the expected squared error of rounding a layer's input in steps, and its weights to signed bytes."""
    groups = layer.groups
    weight = layer.weight.reshape(groups, -1, layer.weight.shape[1], math.prod(layer.weight.shape[2:]))
    scaled = np.square(weight * factors.reshape(groups, 1, -1, 1))
    energies = (squares / factors**2).reshape(groups, 1, -1)
    rounding = scaled.max((2, 3)) / LARGEST**2 * energies.sum(2) * weight.shape[3]
    return float(step**2 * scaled.sum() + rounding.sum())
