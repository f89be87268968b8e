"""Tensors made from a size, and ranges."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from engine.layers.creation import creation, matrices, randomness, scripted, sequences
from engine.onnx_writing.registry import writes
from engine.onnx_writing.rules.joining import grid
from engine.onnx_writing.value import Operand, Value, described, promoted
from engine.onnx_writing.writer import FLOAT32, INT64, Writer
from engine.promotion import result_type
from engine.tensor import DType


@writes(creation.Full, dynamic=("size",))
def full(to: Writer, layer: creation.Full, fill_value: Operand = 0) -> Value:
    return to.filled(to.vector(layer.size), fill_value, layer.wanted or result_type(promoted(fill_value)))


@writes(creation.FullLike)
def full_like(to: Writer, layer: creation.FullLike, input: Value, fill_value: Operand) -> Value:
    return to.filled(to.sizes(input), fill_value, layer.dtype or input.dtype)


@writes(creation.NewFull, dynamic=("size",))
def new_full(to: Writer, layer: creation.NewFull, input: Value, fill_value: Operand) -> Value:
    return to.filled(to.vector(layer.size), fill_value, layer.dtype or input.dtype)


@writes(creation.ScalarTensor)
def scalar_tensor(to: Writer, layer: creation.ScalarTensor, s: Operand) -> Value:
    return replace(to.tensor(s, layer.dtype or FLOAT32), is_number=False)


@writes(sequences.ARange)
def arange(to: Writer, layer: sequences.ARange, end: Operand, start: Operand = 0, step: Operand = 1) -> Value:
    bounds = [sequences.known_number(each) if isinstance(each, str) else each for each in (start, end, step)]
    dtype = layer.result_dtype(tuple(promoted(each) for each in bounds))
    wide = dtype if dtype in (np.float32, np.float64, np.int32, np.int64) else INT64 if dtype.kind in "iu" else FLOAT32
    return to.cast(to.op("Range", *(to.reshape(to.tensor(each, wide), ()) for each in bounds), shape=(None,)), dtype)


@writes(sequences.ShapeAsTensor)
def shape_as_tensor(to: Writer, layer: sequences.ShapeAsTensor, input: Value) -> Value:
    return to.sizes(input, layer.start, layer.end)


@writes(matrices.MeshGrid)
def mesh_grid(to: Writer, layer: matrices.MeshGrid, tensors: list[Value]) -> list[Value]:
    vectors = [to.reshape(each, (-1,)) for each in tensors]
    if layer.indexing != "xy" or len(vectors) < 2:
        return grid(to, vectors)
    swapped = grid(to, [vectors[1], vectors[0], *vectors[2:]])
    return [swapped[1], swapped[0], *swapped[2:]]


@writes(matrices.OneHot)
def one_hot(to: Writer, layer: matrices.OneHot, input: Value) -> Value:
    places = to.cast(input, INT64)
    count = layer.num_classes if layer.num_classes >= 0 else to.op("ReduceMax", places, keepdims=0) + 1
    return to.op("OneHot", places, count, [0, 1], axis=-1)


# Scripts


@writes(scripted.FromData)
def from_data(to: Writer, layer: scripted.FromData, data: Operand) -> Value:
    value = _nested(to, data)
    default = FLOAT32 if value.dtype.kind == "f" and not isinstance(data, Value) else value.dtype
    return replace(to.cast(value, layer.dtype or default), is_number=False)


def _nested(to: Writer, data: Operand) -> Value:
    if isinstance(data, list | tuple) and any(isinstance(each, list | tuple) for each in data):
        return to.op("Concat", *(to.unsqueeze(_nested(to, each), 0) for each in data), axis=0)
    return to.tensor(data)


@writes(scripted.DTypeOf)
def dtype_of(to: Writer, layer: scripted.DTypeOf, input: Value) -> DType:
    return input.dtype


@writes(scripted.DeviceOf)
def device_of(to: Writer, layer: scripted.DeviceOf, input: Value) -> str:
    return "cpu"


@writes(scripted.RawTo)
def raw_to(to: Writer, layer: scripted.RawTo, input: Value, *operands: Operand) -> Value:
    return to.cast(input, layer.result_dtype(input.dtype, described(operands)))


# Random numbers


@writes(randomness.RandN, randomness.Rand, dynamic=("size",))
def random(to: Writer, layer: Any, *none: object) -> Value:
    like = to.filled(to.vector(layer.size), 0, layer.wanted or FLOAT32)
    return to.op(_RANDOM[type(layer)], like)


@writes(randomness.RandNLike, randomness.RandLike)
def random_like(to: Writer, layer: Any, input: Value) -> Value:
    return to.op(_RANDOM[type(layer)], input, dtype=layer.dtype)


_RANDOM = {
    randomness.RandN: "RandomNormalLike", randomness.RandNLike: "RandomNormalLike",
    randomness.Rand: "RandomUniformLike", randomness.RandLike: "RandomUniformLike",
}  # fmt: skip
