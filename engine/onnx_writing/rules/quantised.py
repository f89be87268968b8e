"""Quantised tensors: pairs of QuantizeLinear and DequantizeLinear, which runtimes fuse with the layer between them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from engine.layers.onnx.products import quantise as linear
from engine.layers.quantised import quantise
from engine.onnx_writing.registry import writes
from engine.onnx_writing.value import Operand, Value, described
from engine.onnx_writing.writer import FLOAT32, Writer
from engine.tensor import DType

_UINT8: Final[DType] = np.dtype(np.uint8)
_INT8: Final[DType] = np.dtype(np.int8)
_EIGHT_BITS: Final = {(0, 255): _UINT8, (-128, 127): _INT8}


@writes(linear.QuantizeLinear, folds=False)
def quantize_linear(
    to: Writer, layer: linear.QuantizeLinear, input: Value, scale: Operand, zero_point: Operand = 0
) -> Value:
    dtype = layer.result_dtype(described(zero_point))
    factor, zero = _scale(to, scale, input.dtype), _zero(to, zero_point, dtype)
    if zero is None and dtype != _UINT8:
        zero = to.store(np.zeros(() if factor.constant is None else factor.constant.shape, dtype))
    saturate = None if layer.saturate else 0
    return to.op(
        "QuantizeLinear", input, factor, zero, dtype=dtype, saturate=saturate, **_blocks(to, layer, factor, dtype)
    )


def _blocks(to: Writer, layer: Any, scale: Value, dtype: DType) -> dict[str, Any]:
    """Return the attributes of a scale; the file uses the operator set that has the dtype, or blocks."""
    if layer.block_size or dtype not in (_UINT8, _INT8, np.int32):
        to.require(21 if dtype.name != "float4_e2m1fn" else 23)
    axis = layer.axis if scale.sizes not in ((), (1,)) else None
    return {"axis": axis, "block_size": layer.block_size or None}


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
    zero, blocks = _zero(to, zero_point, input.dtype), _blocks(to, layer, factor, input.dtype)
    made = to.op("DequantizeLinear", input, factor, zero, dtype=factor.dtype, **blocks)
    return to.cast(made, layer.result_dtype(factor.spec))


# PyTorch's own


@writes(quantise.FakeQuantize)
def fake_quantize(to: Writer, layer: quantise.FakeQuantize, input: Value) -> Value:
    scale, zero = to.constant(layer.scale, FLOAT32), to.constant(layer.zero_point)
    return _fake(to, layer, input, scale, zero, None)


@writes(quantise.FakeQuantizeChannels)
def fake_quantize_channels(
    to: Writer, layer: quantise.FakeQuantizeChannels, input: Value, scale: Value, zero_point: Value
) -> Value:
    return _fake(to, layer, input, scale, zero_point, layer.axis % input.rank)


def _fake(to: Writer, layer: Any, input: Value, scale: Value, zero: Value, axis: int | None) -> Value:
    """Write the rounding to codes and back: as a pair where they are 8-bit integers, else as arithmetic."""
    limits = layer.quant_min, layer.quant_max
    dtype, x = _EIGHT_BITS.get(limits), to.cast(input, FLOAT32)
    if dtype is not None:
        code = to.cast(zero, dtype)
        codes = to.op("QuantizeLinear", x, scale, code, dtype=dtype, axis=axis)
        return to.cast(to.op("DequantizeLinear", codes, scale, code, dtype=FLOAT32, axis=axis), input.dtype)
    tail = () if axis is None else (-1, *(1,) * (input.rank - 1 - axis))
    step, shift = (to.reshape(to.cast(each, FLOAT32), tail) for each in (scale, zero))
    kept = to.op("Clip", to.op("Round", x / step) + shift, *limits)
    return to.cast((kept - shift) * step, input.dtype)
