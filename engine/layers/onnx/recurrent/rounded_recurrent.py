"""LSTM with onnxruntime's dynamic quantisation: the inputs of products are rounded to bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.layers.definition.registry import register
from engine.layers.onnx.products.quantise import bytes_between
from engine.layers.onnx.recurrent.recurrent import Cell, OnnxLSTM, Operands
from engine.tensor import Array


@register("DynamicQuantizeLSTM")
class DynamicQuantizeLSTM(OnnxLSTM):
    """LSTM whose input, and in every step H of all rows, is rounded to 255 steps over its extremes and zero.

    Weights are already dequantised.
    """

    def _run(self, x: Array, given: Operands) -> list[Array]:
        return super()._run(rounded(x), given)

    def _step(self, cell: Cell, product_: Array, states: Sequence[Array], size: int) -> list[Array]:
        h, *others = states
        return super()._step(cell, product_, [rounded(h), *others], size)


def rounded(x: Array) -> Array:
    """Quantise x with DynamicQuantizeLinear and dequantise it."""
    codes, scale, zero = bytes_between(x)
    return np.asarray((codes.astype(x.dtype) - zero) * scale.astype(x.dtype))
