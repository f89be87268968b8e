"""Quantised tensors: pairs of QuantizeLinear and DequantizeLinear, which runtimes fuse with the layer between them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from engine.layers.onnx.products import quantise as linear
from engine.layers.quantised import quantise
from engine.onnx_writing.registry import writes
from engine.onnx_writing.rules.functions import number
from engine.onnx_writing.value import Operand, Value
from engine.onnx_writing.writer import FLOAT32, Writer
from engine.tensor import DType

_UINT8: Final[DType] = np.dtype(np.uint8)
_INT8: Final[DType] = np.dtype(np.int8)
_EIGHT_BITS: Final = {(0, 255): _UINT8, (-128, 127): _INT8}


@writes(linear.QuantizeLinear, folds=False)
def quantize_linear(
    to: Writer, layer: linear.QuantizeLinear, input: Value, scale: Operand, zero_point: Operand = 0
) -> Value:
    dtype = layer._dtype(zero_point.spec if isinstance(zero_point, Value) else zero_point)
    return _rounded(to, layer, input, _scale(to, scale, input.dtype), _zero(to, zero_point, dtype), dtype)


def _rounded(to: Writer, layer: Any, input: Value, scale: Value, zero: Value | None, dtype: DType) -> Value:
    _require(to, layer, dtype)
    needs_zero = zero is None and dtype != _UINT8
    zero = to.constant(np.zeros(scale.shape if None not in scale.shape else (), dtype)) if needs_zero else zero
    return to.op(
        "QuantizeLinear", input, scale, zero, dtype=dtype,
        axis=_axis(layer, scale), block_size=layer.block_size or None, saturate=None if layer.saturate else 0,
    )  # fmt: skip


def _axis(layer: Any, scale: Value) -> int | None:
    return layer.axis if scale.sizes not in ((), (1,)) else None


def _require(to: Writer, layer: Any, dtype: DType) -> None:
    """Let the file use the operator set that has the dtype, or blocks."""
    if layer.block_size or dtype.kind not in "iu" or dtype.itemsize > 1 or dtype not in (_UINT8, _INT8):
        to.require(21 if dtype.name != "float4_e2m1fn" else 23)


def _scale(to: Writer, scale: Operand, dtype: DType) -> Value:
    return to.tensor(scale) if isinstance(scale, Value) else to.constant(scale, dtype if dtype.kind == "f" else FLOAT32)


def _zero(to: Writer, zero_point: Operand, dtype: DType) -> Value | None:
    if isinstance(zero_point, Value):
        return to.cast(zero_point, dtype)
    return to.constant(zero_point, dtype) if zero_point else None


@writes(linear.DequantizeLinear, folds=False)
def dequantize_linear(
    to: Writer, layer: linear.DequantizeLinear, input: Value, scale: Operand, zero_point: Operand = 0
) -> Value:
    factor = _scale(to, scale, FLOAT32)
    if input.dtype != np.int32:
        _require(to, layer, input.dtype)
    made = to.op(
        "DequantizeLinear", input, factor, _zero(to, zero_point, input.dtype), dtype=factor.dtype,
        axis=_axis(layer, factor), block_size=layer.block_size or None,
    )  # fmt: skip
    return to.cast(made, layer._dtype(factor.spec))


# PyTorch's own


@writes(quantise.FakeQuantize)
def fake_quantize(to: Writer, layer: quantise.FakeQuantize, input: Value) -> Value:
    scale, zero = to.constant(layer.scale, FLOAT32), layer.zero_point
    return _fake(to, input, scale, to.constant(zero), (layer.quant_min, layer.quant_max), None)


@writes(quantise.FakeQuantizeChannels)
def fake_quantize_channels(
    to: Writer, layer: quantise.FakeQuantizeChannels, input: Value, scale: Value, zero_point: Value
) -> Value:
    return _fake(to, input, scale, zero_point, (layer.quant_min, layer.quant_max), layer.axis % input.rank)


def _fake(to: Writer, input: Value, scale: Value, zero: Value, limits: tuple[int, int], axis: int | None) -> Value:
    """Write the rounding to codes and back: as a pair where they are 8-bit integers, else as arithmetic."""
    dtype = _EIGHT_BITS.get(limits)
    x = to.cast(input, FLOAT32)
    if dtype is not None:
        code = to.cast(zero, dtype)
        codes = to.op("QuantizeLinear", x, scale, code, dtype=dtype, axis=axis)
        return to.cast(to.op("DequantizeLinear", codes, scale, code, dtype=FLOAT32, axis=axis), input.dtype)
    tail = () if axis is None else (-1, *(1,) * (input.rank - 1 - axis))
    step, shift = (to.reshape(to.cast(each, FLOAT32), tail) for each in (scale, zero))
    whole = to.op("Add", to.op("Round", to.op("Div", x, step)), shift)
    kept = to.op("Clip", whole, *(number(to, each, x) for each in limits))
    return to.cast(to.op("Mul", to.op("Sub", kept, shift), step), input.dtype)
