"""Messages of an ONNX file: nodes, tensors, inputs and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, BinaryIO, Final

import numpy as np

from engine.layers.onnx.operands.dtypes import NUMBERS
from engine.onnx.reading.source import library
from engine.onnx_writing.builder import Builder, Graph, Node
from engine.onnx_writing.value import Value
from engine.tensor import Array

PRODUCER: Final = "pnnx-serve"
_INLINE_BYTES: Final = 1024
"""Tensors up to this size stay in the model when others are stored in a file of their own."""
_ALIGNMENT: Final = 4096
"""Offsets of tensors in their own file, so that runtimes can map them."""


def model_proto(
    builder: Builder,
    name: str,
    sizes: Sequence[Sequence[str | None]],
    outside: tuple[str, BinaryIO] | None = None,
) -> Any:
    """Return the message of a model.

    Args:
        sizes: names of the dynamic dimensions of every input and output.
        outside: name of the file of large tensors and where its content goes; None to store them in the model.
    """
    onnx, graph, ports = library(), builder.graph, iter(sizes)
    inputs = [_port(builder, each, next(ports)) for each in graph.inputs]
    outputs = [_port(builder, each, next(ports)) for each in graph.outputs]
    tensors = [_tensor(builder.public(name), array, outside) for name, array in builder.stored.items()]
    nodes = [_node(builder, each) for each in graph.nodes]
    proto = onnx.helper.make_graph(nodes, name, inputs, outputs, initializer=tensors)
    opsets = [onnx.helper.make_opsetid("", builder.opset)]
    model = onnx.helper.make_model(proto, opset_imports=opsets, producer_name=PRODUCER)
    model.ir_version = onnx.helper.find_min_ir_version_for(opsets)
    _complete(model)
    return model


def _complete(model: Any) -> None:
    """Give outputs of unknown rank the shape that ONNX infers; each output needs one."""
    onnx = library()
    if all(each.type.tensor_type.HasField("shape") for each in model.graph.output):
        return
    inferred = {each.name: each for each in onnx.shape_inference.infer_shapes(model).graph.output}
    for each in model.graph.output:
        each.CopyFrom(inferred[each.name])


def _port(builder: Builder, value: Value, names: Sequence[str | None]) -> Any:
    onnx = library()
    shape: list[int | str | None] | None = None
    if value.sizes is not None:
        given = [*names, *[None] * (len(value.sizes) - len(names))]
        shape = [name if size is None else int(size) for size, name in zip(value.sizes, given, strict=True)]
    return onnx.helper.make_tensor_value_info(builder.public(value.name), NUMBERS[value.dtype], shape)


def _node(builder: Builder, node: Node) -> Any:
    onnx = library()
    inputs, outputs = ([builder.public(each) for each in names] for names in (node.inputs, node.outputs))
    made = onnx.helper.make_node(node.type, inputs, outputs, name=node.name)
    for key, each in node.attributes.items():
        made.attribute.append(onnx.helper.make_attribute(key, _attribute(builder, each)))
    return made


def _attribute(builder: Builder, value: Any) -> Any:
    if isinstance(value, Graph):
        return _subgraph(builder, value)
    if isinstance(value, np.ndarray):
        return _tensor("", value, None)
    return value


def _subgraph(builder: Builder, graph: Graph) -> Any:
    onnx = library()
    inputs = [_port(builder, each, ()) for each in graph.inputs]
    outputs = [_port(builder, each, ()) for each in graph.outputs]
    return onnx.helper.make_graph([_node(builder, each) for each in graph.nodes], "body", inputs, outputs)


def _tensor(name: str, array: Array, outside: tuple[str, BinaryIO] | None) -> Any:
    """Return the message of a tensor; a large one names its place in the other file."""
    onnx = library()
    tensor = onnx.TensorProto(name=name, dims=array.shape, data_type=NUMBERS[array.dtype])
    if array.dtype.hasobject:
        tensor.string_data.extend(str(each).encode() for each in array.flat)
        return tensor
    content = _content(array)
    if outside is None or len(content) <= _INLINE_BYTES:
        tensor.raw_data = content
        return tensor
    file, out = outside
    out.write(bytes(-out.tell() % _ALIGNMENT))
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", file), ("offset", out.tell()), ("length", len(content))):
        tensor.external_data.add(key=key, value=str(value))
    out.write(content)
    return tensor


def _content(array: Array) -> bytes:
    """Return the bytes of a tensor; elements narrower than a byte are packed, the first in the lowest bits."""
    bits = _BITS.get(str(array.dtype.name))
    if bits is None:
        return np.ascontiguousarray(array).tobytes()
    codes = np.ascontiguousarray(array).reshape(-1).view(np.uint8) & ((1 << bits) - 1)
    rows = np.pad(codes, (0, -len(codes) % (8 // bits))).reshape(-1, 8 // bits)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    packed: bytes = np.bitwise_or.reduce(rows << shifts, axis=1).astype(np.uint8).tobytes()
    return packed


_BITS: Final = {"int4": 4, "uint4": 4, "float4_e2m1fn": 4, "int2": 2, "uint2": 2}
