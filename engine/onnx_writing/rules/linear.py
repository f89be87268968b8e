"""Linear maps and matrix products."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from engine.layers.linear import block_linear, linear, matmul
from engine.onnx_writing.registry import writes
from engine.onnx_writing.value import Value
from engine.onnx_writing.writer import END, INT64, Writer


@writes(linear.Linear)
def linear_(to: Writer, layer: linear.Linear, input: Value, weight: Value, bias: Value | None = None) -> Value:
    x, matrix, shift = to.widest(input, weight, bias)
    if x.rank == 2 and matrix.rank == 2 and x.dtype.kind == "f":
        return to.op("Gemm", x, matrix, shift, transB=1)
    made = to.op("MatMul", x, transposed(to, matrix) if matrix.rank == 2 else matrix)
    return made if shift is None else made + shift


def transposed(to: Writer, matrix: Value) -> Value:
    """Return the transpose of a matrix; that of stored codes before they are dequantised."""
    node = to.producer(matrix)
    if node is None or node.type != "DequantizeLinear" or node.inputs[0] not in to.stored:
        return to.transpose(matrix, (1, 0))
    codes, *others = node.inputs
    turned = to.store(np.ascontiguousarray(to.stored[codes].T), f"{codes}/transposed")
    attributes = {**node.attributes, "axis": 1 - node.attributes.get("axis", 1) % 2}
    scales = [Value(to, name, matrix.dtype) for name in others]
    made = to.op("DequantizeLinear", turned, *scales, dtype=matrix.dtype, **attributes)
    return replace(made, sizes=matrix.shape[::-1])


@writes(block_linear.BlockLinear, folds=False)
def blocks(
    to: Writer,
    layer: block_linear.BlockLinear,
    input: Value,
    weight: Value,
    scales: Value,
    zero_points: Value | None = None,
    bias: Value | None = None,
) -> Value:
    """Write weights in blocks as codes of 4 or 8 bits that are dequantised."""
    (width,) = to.known(input.shape[-1:], "the number of features")
    zeros = 1 << (layer.bits - 1) if zero_points is None else zero_points.constant
    if weight.constant is None or zeros is None:
        to.refuse("weights in blocks must be stored with the model")
    zeros = np.broadcast_to(zeros, weight.constant.shape[:2])
    if not np.isin(zeros, range(1 << layer.bits)).all():
        to.refuse("zero points of weights in blocks must be integers of as many bits as the codes")
    to.require(21)
    dtype = np.dtype("uint8" if layer.bits == 8 else "uint4")
    codes = block_linear.codes_of(weight.constant, layer.bits).reshape(len(weight.constant), -1)[:, :width]
    stored = [
        to.store(each.T.astype(dtype), f"{to.scope}.{name}") for each, name in ((codes, "codes"), (zeros, "zeros"))
    ]
    factors = to.transpose(to.cast(scales, input.dtype), (1, 0))
    matrix = to.op("DequantizeLinear", stored[0], factors, stored[1], dtype=input.dtype, axis=0,
                   block_size=layer.block_size)  # fmt: skip
    made = to.op("MatMul", input, matrix)
    return made if bias is None else made + to.cast(bias, input.dtype)


@writes(matmul.Matmul)
def matmul_(to: Writer, layer: matmul.Matmul, input: Value, other: Value) -> Value:
    return to.op("MatMul", *to.widest(input, other))


@writes(matmul.AddMatmul)
def add_matmul(to: Writer, layer: matmul.AddMatmul, input: Value, first: Value, second: Value) -> Value:
    term, a, b = to.widest(input, first, second)
    made = to.op("MatMul", a, b)
    made = made if layer.alpha == 1 else made * layer.alpha
    return made if layer.beta == 0 else made + (term if layer.beta == 1 else term * layer.beta)


@writes(matmul.GroupedMatmul)
def grouped_matmul(
    to: Writer, layer: matmul.GroupedMatmul, input: Value, other: Value, ends: Value | None = None
) -> Value:
    a, b = to.widest(input, other)
    if ends is None:
        return to.op("MatMul", a, b)
    (count,) = to.known(other.shape[:1], "the number of groups")
    whole, start, parts = to.cast(ends, INT64), to.vector([0]), []
    for k in range(count):
        end = to.op("Slice", whole, [k], [k + 1], shape=(1,))
        parts.append(to.op("MatMul", to.op("Slice", a, start, end, [0]), to.take(b, k, 0)))
        start = end
    parts.append(to.op("MatMul", to.op("Slice", a, start, [END], [0]), to.take(b, 0, 0)) * 0)
    return to.op("Concat", *parts, axis=0)
