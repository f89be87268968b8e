"""Linear maps and matrix products."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from engine.layers.linear import linear, matmul
from engine.onnx_writing.registry import writes
from engine.onnx_writing.rules.functions import times
from engine.onnx_writing.value import Value
from engine.onnx_writing.writer import FLOAT64, INT64, Writer
from engine.promotion import promote_types
from engine.tensor import DType


@writes(linear.Linear)
def linear_(to: Writer, layer: linear.Linear, input: Value, weight: Value, bias: Value | None = None) -> Value:
    dtype = promote_types(input.dtype, weight.dtype)
    dtype = dtype if bias is None else promote_types(dtype, bias.dtype)
    x, matrix = to.cast(input, dtype), to.cast(weight, dtype)
    shift = None if bias is None else to.cast(bias, dtype)
    if x.rank == 2 and matrix.rank == 2 and dtype.kind == "f":
        return to.op("Gemm", x, matrix, shift, transB=1)
    turned = transposed(to, matrix) if matrix.rank == 2 else matrix
    made = product(to, x, turned, dtype)
    return made if shift is None else to.op("Add", made, shift)


def transposed(to: Writer, matrix: Value) -> Value:
    """Return the transpose of a matrix; that of stored codes before they are dequantised."""
    node = to.builder.producer(matrix)
    if node is None or node.type != "DequantizeLinear" or node.inputs[0] not in to.builder.stored:
        return to.transpose(matrix, (1, 0))
    codes, *others = node.inputs
    stored = np.ascontiguousarray(to.builder.stored[codes].T)
    scale, *zero = (Value(name, matrix.dtype) for name in others)
    attributes = {**node.attributes, "axis": 1 - node.attributes.get("axis", 1) % 2}
    made = to.op("DequantizeLinear", to.builder.constant(stored, f"{codes}/transposed"), scale, *zero,
                 dtype=matrix.dtype, **attributes)  # fmt: skip
    return replace(made, sizes=matrix.shape[::-1])


def product(to: Writer, a: Value, b: Value, dtype: DType) -> Value:
    """Write a matrix product of values of one dtype; integers by way of float64 where runtimes have no kernels."""
    if dtype.kind == "f" or dtype.itemsize >= 4:
        return to.op("MatMul", a, b)
    return to.cast(to.op("MatMul", to.cast(a, FLOAT64), to.cast(b, FLOAT64)), dtype)


@writes(matmul.Matmul)
def matmul_(to: Writer, layer: matmul.Matmul, input: Value, other: Value) -> Value:
    dtype = promote_types(input.dtype, other.dtype)
    return product(to, to.cast(input, dtype), to.cast(other, dtype), dtype)


@writes(matmul.AddMatmul)
def add_matmul(to: Writer, layer: matmul.AddMatmul, input: Value, first: Value, second: Value) -> Value:
    dtype = promote_types(promote_types(input.dtype, first.dtype), second.dtype)
    term, a, b = (to.cast(each, dtype) for each in (input, first, second))
    made = product(to, a, b, dtype)
    made = made if layer.alpha == 1 else times(to, made, layer.alpha)
    if layer.beta == 0:
        return made
    return to.op("Add", made, term if layer.beta == 1 else times(to, term, layer.beta))


@writes(matmul.GroupedMatmul)
def grouped_matmul(
    to: Writer, layer: matmul.GroupedMatmul, input: Value, other: Value, ends: Value | None = None
) -> Value:
    dtype = promote_types(input.dtype, other.dtype)
    a, b = to.cast(input, dtype), to.cast(other, dtype)
    if ends is None:
        return product(to, a, b, dtype)
    (count,) = to.known(other.shape[:1], "the number of groups")
    whole, start, parts = to.cast(ends, INT64), to.constant([0], INT64), []
    for k in range(count):
        end = to.op("Slice", whole, to.constant([k], INT64), to.constant([k + 1], INT64), shape=(1,))
        rows = to.op("Slice", a, start, end, to.constant([0], INT64))
        parts.append(product(to, rows, to.op("Gather", b, to.constant(k, INT64), axis=0), dtype))
        start = end
    rest = to.op("Slice", a, start, to.constant([2**63 - 1], INT64), to.constant([0], INT64))
    zeros = to.op("Gather", b, to.constant(0, INT64), axis=0)
    parts.append(times(to, product(to, rest, zeros, dtype), 0))
    return to.op("Concat", *parts, axis=0)
