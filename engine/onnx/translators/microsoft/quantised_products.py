"""Quantised matrix products."""

from __future__ import annotations

import numpy as np

from engine.errors import ParameterError
from engine.layers.linear.block_linear import WIDTHS, codes_of
from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import MICROSOFT, translates
from engine.onnx.translation.value import Value, constant
from engine.onnx.translators.microsoft.products import turned
from engine.onnx.translators.microsoft.quantised import columns, quantised, real, real_array
from engine.onnx.translators.quantised import quantised_by_its_range
from engine.onnx.translators.recurrent import network

# Largest distance of a weight from its zero point that a signed byte holds.
_LARGEST = 127


@translates("MatMulNBits", domain=MICROSOFT)
def matmul_n_bits(node: Node) -> Value | None:
    """Translate to engine.BlockLinear; the codes stay packed."""
    bits, block = node.number("bits", 4), node.number("block_size", 0)
    n, k = node.number("N", 0), node.number("K", 0)
    packed, scales, zeros, bias = node.array(1), node.array(2), node.array(3), node.array(5)
    is_computed = (node.is_given(3) and zeros is None) or (node.is_given(5) and bias is None)
    if packed is None or scales is None or is_computed or node.is_given(4):
        return None
    if bits not in WIDTHS or block < 1 or n < 1 or k < 1 or packed.dtype != np.uint8 or scales.dtype.kind != "f":
        return None
    blocks = -(-k // block)
    if packed.size * 8 != n * blocks * block * bits or scales.size != n * blocks:
        raise ParameterError("packed weights do not fit", found=packed.size, expected=f"{n} rows of {k} x {bits} bits")
    stored = {"weight": packed.reshape(n, blocks, -1), "scales": scales.reshape(n, blocks)}
    if zeros is not None:
        is_packed = zeros.dtype == np.uint8
        size = n * -(-blocks * bits // 8) if is_packed else n * blocks
        if zeros.size != size:
            raise ParameterError("zero points do not fit", found=zeros.size, expected=size)
        zeros = zeros.reshape(n, -1)
        stored["zero_points"] = codes_of(zeros, bits)[:, :blocks] if is_packed else zeros
    if bias is not None:
        stored["bias"] = bias
    return node.make(
        "engine.BlockLinear",
        node.input(0),
        weights=stored,
        bits=bits,
        block_size=block,
        zero_points=zeros is not None,
        bias=bias is not None,
    )


@translates("QGemm", domain=MICROSOFT)
def quantised_gemm(node: Node) -> Value | None:
    """Dequantise and multiply; quantise the result if there is a scale for it."""
    zero, scales = node.array(5), (node.array(1), node.array(4))
    columns = int(zero.size) if zero is not None else 1
    codes = node.array(3)
    if codes is None or scales[0] is None or scales[1] is None or codes.ndim != 2 or scales[0].size != 1:
        return None
    codes = codes.T if node.number("transB", 0) else codes
    if columns not in (1, codes.shape[1]) or (node.is_given(5) and zero is None):
        return None
    alpha = np.float32(node.real("alpha", 1.0))
    weight = real_array(codes, scales[1].reshape(-1), None if zero is None else zero.reshape(-1)) * alpha
    a = real(node, node.input(0), node.optional(1), node.optional(2))
    y = node.make("torch.matmul", turned(node, a) if node.number("transA", 0) else a, constant(weight))
    if node.is_given(6):
        step = constant(scales[0].reshape(()) * scales[1].reshape(-1) * alpha)
        bias = node.make("Tensor.to", node.input(6), dtype="torch.float")
        y = node.expression("add(@0,mul(@1,@2))", y, bias, step)
    return quantised(node, y, node.optional(7), node.optional(8)) if node.is_given(7) else y


@translates("MatMulIntegerToFloat", domain=MICROSOFT)
def integer_matmul(node: Node) -> Value:
    """Dequantise and multiply."""
    a = real(node, node.input(0), node.optional(2), node.optional(4))
    b = columns(node, node.input(1), node.optional(3), node.optional(5))
    y = node.make("torch.matmul", a, b)
    return node.expression("add(@0,@1)", y, node.input(6)) if node.is_given(6) else y


@translates("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_matmul(node: Node) -> Value:
    """Multiply with the first matrix quantised to bytes by its own minimum and maximum."""
    a = real(node, *quantised_by_its_range(node, node.input(0)))
    b = columns(node, node.input(1), node.optional(2), node.optional(3))
    y = node.make("torch.matmul", a, b)
    return node.expression("add(@0,@1)", y, node.input(4)) if node.is_given(4) else y


@translates("DynamicQuantizeLSTM", domain=MICROSOFT)
def quantised_lstm(node: Node) -> list[Value] | None:
    """Translate to an LSTM with weights of integers, whose input and state are rounded to bytes."""
    given = {"x": node.input(0)}
    for name, place, scale, zero in (("w", 1, 8, 9), ("r", 2, 10, 11)):
        codes, step, middle = (node.array(k) for k in (place, scale, zero))
        if codes is None or step is None or middle is None:
            return None
        shape = (len(codes), 1, codes.shape[2])
        step, middle = (each.reshape(len(each), 1, -1) for each in (step, middle))
        distances = codes.astype(np.int16) - middle
        if np.abs(distances).max(initial=0) <= _LARGEST:
            distances = distances.astype(np.int8)
        given[name] = constant(np.ascontiguousarray(distances.swapaxes(1, 2)))
        given[f"{name}_scale"] = constant(np.broadcast_to(step, shape)[:, 0].astype(np.float32))
    others = zip(("b", "lengths", "h", "c", "p"), (node.optional(k) for k in range(3, 8)), strict=True)
    given |= {name: value for name, value in others if value is not None}
    options = {"rounds": "all", "couples_gates": bool(node.number("input_forget", 0))}
    return network(node, "LSTM", given, options)
