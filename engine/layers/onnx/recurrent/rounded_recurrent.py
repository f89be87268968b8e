"""LSTM as onnxruntime quantises it in a run: what goes into its products is rounded to bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.layers.definition.registry import register
from engine.layers.onnx.products.quantise import bytes_between
from engine.layers.onnx.recurrent.recurrent import Cell, OnnxLSTM, Operands
from engine.tensor import Array


@register("DynamicQuantizeLSTM")
class DynamicQuantizeLSTM(OnnxLSTM):
    """An LSTM whose input is rounded to 255 steps between its extremes and zero, and so is H of all rows in every step.

    Its weights are the numbers that the file's bytes stand for.
    """

    def _run(self, x: Array, given: Operands) -> list[Array]:
        return super()._run(rounded(x), given)

    def _step(self, cell: Cell, product_: Array, states: Sequence[Array], size: int) -> list[Array]:
        h, *others = states
        return super()._step(cell, product_, [rounded(h), *others], size)


def rounded(x: Array) -> Array:
    """The numbers that bytes stand for, which DynamicQuantizeLinear makes of x."""
    codes, scale, zero = bytes_between(x)
    return np.asarray((codes.astype(x.dtype) - zero) * scale.astype(x.dtype))
