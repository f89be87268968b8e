"""Tensors made from a size, and ranges."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.layers.creation import creation, matrices, randomness, scripted, sequences
from engine.onnx_writing.registry import writes
from engine.onnx_writing.rules.joining import grid
from engine.onnx_writing.value import Operand, Value, promoted
from engine.onnx_writing.writer import INT64, Writer
from engine.promotion import result_type
from engine.tensor import DType


def _filled(to: Writer, shape: Value, value: Operand, dtype: DType) -> Value:
    """Write a tensor full of one number."""
    if isinstance(value, Value) and value.constant is not None and value.constant.size == 1:
        value = value.constant.item()
    if isinstance(value, Value):
        return to.op("Expand", to.reshape(to.cast(value, dtype), ()), shape)
    number = to.constant(value, dtype).constant
    assert number is not None  # a stored number
    return to.op("ConstantOfShape", shape, dtype=dtype, value=number.reshape(1))


@writes(creation.Full, dynamic=("size",))
def full(to: Writer, layer: creation.Full, fill_value: Operand = 0) -> Value:
    dtype = layer.wanted or result_type(promoted(fill_value))
    return _filled(to, to.vector(layer.size), fill_value, dtype)


@writes(creation.FullLike)
def full_like(to: Writer, layer: creation.FullLike, input: Value, fill_value: Operand) -> Value:
    return _filled(to, to.sizes(input), fill_value, layer.dtype or input.dtype)


@writes(creation.NewFull, dynamic=("size",))
def new_full(to: Writer, layer: creation.NewFull, input: Value, fill_value: Operand) -> Value:
    return _filled(to, to.vector(layer.size), fill_value, layer.dtype or input.dtype)


@writes(creation.ScalarTensor)
def scalar_tensor(to: Writer, layer: creation.ScalarTensor, s: Operand) -> Value:
    from dataclasses import replace

    return replace(to.tensor(s, layer.dtype or creation.FLOAT32), is_number=False)


@writes(sequences.ARange)
def arange(to: Writer, layer: sequences.ARange, end: Operand, start: Operand = 0, step: Operand = 1) -> Value:
    bounds = [sequences._known_number(each) if isinstance(each, str) else each for each in (start, end, step)]
    dtype = layer._result_dtype(tuple(promoted(each) for each in bounds))
    wide = dtype if dtype in (np.float32, np.float64, np.int32, np.int64) else INT64 if dtype.kind in "iu" else None
    if wide is None:
        wide = creation.FLOAT32
    given = [to.tensor(each, wide) for each in bounds]
    return to.cast(to.op("Range", *(to.reshape(each, ()) for each in given), shape=(None,)), dtype)


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
    if layer.num_classes < 0:
        count = to.op("Add", to.op("ReduceMax", places, keepdims=0), to.constant(1, INT64))
    else:
        count = to.constant(layer.num_classes, INT64)
    return to.op("OneHot", places, count, to.constant([0, 1], INT64), axis=-1, dtype=INT64)


# Scripts


@writes(scripted.FromData)
def from_data(to: Writer, layer: scripted.FromData, data: Operand) -> Value:
    value = _nested(to, data)
    default = creation.FLOAT32 if value.dtype.kind == "f" and not isinstance(data, Value) else value.dtype
    from dataclasses import replace

    return replace(to.cast(value, layer.dtype or default), is_number=False)


def _nested(to: Writer, data: Operand) -> Value:
    if isinstance(data, list | tuple) and any(isinstance(each, list | tuple) for each in data):
        parts = [to.unsqueeze(_nested(to, each), 0) for each in data]
        return to.op("Concat", *parts, axis=0)
    return to.tensor(data)


@writes(scripted.DTypeOf)
def dtype_of(to: Writer, layer: scripted.DTypeOf, input: Value) -> DType:
    return input.dtype


@writes(scripted.DeviceOf)
def device_of(to: Writer, layer: scripted.DeviceOf, input: Value) -> str:
    return "cpu"


@writes(scripted.RawTo)
def raw_to(to: Writer, layer: scripted.RawTo, input: Value, *operands: Operand) -> Value:
    given: Any = tuple(each.spec if isinstance(each, Value) else each for each in operands)
    return to.cast(input, layer._dtype(input, given))  # type: ignore[arg-type]


@writes(scripted.Unwrap)
def unwrap(to: Writer, layer: scripted.Unwrap, value: Operand) -> Operand:
    return layer.forward(value)


# Random numbers


@writes(randomness.RandN, randomness.Rand, dynamic=("size",))
def random(to: Writer, layer: Any, *none: object) -> Value:
    dtype = layer.wanted or creation.FLOAT32
    like = _filled(to, to.vector(layer.size), 0, dtype)
    return _random_like(to, like, dtype, is_normal=isinstance(layer, randomness.RandN))


@writes(randomness.RandNLike, randomness.RandLike)
def random_like(to: Writer, layer: Any, input: Value) -> Value:
    dtype = layer.dtype or input.dtype
    return _random_like(to, input, dtype, is_normal=isinstance(layer, randomness.RandNLike))


def _random_like(to: Writer, like: Value, dtype: DType, *, is_normal: bool) -> Value:
    type = "RandomNormalLike" if is_normal else "RandomUniformLike"
    return to.op(type, like, dtype=dtype)
