"""A built graph as an ONNX model, and its files."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, Final

from engine.errors import EngineError, UnsupportedOperatorError
from engine.graph import Port, RuntimeGraph
from engine.memory.files import Path, file_name
from engine.onnx.reading.source import library
from engine.onnx_writing.graph import GraphWriter
from engine.onnx_writing.protobuf import model_proto
from engine.onnx_writing.value import Operand, Value, flattened
from engine.onnx_writing.writer import Writer
from engine.pnnx.files import replace_file, replace_files
from engine.tensor import TensorSpec

LARGEST_BYTES: Final = 2**31 - 2**24
"""Stored tensors beyond this size go to a file of their own: protocol buffers hold less than 2 GiB."""
DATA_SUFFIX: Final = ".data"


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxFile:
    """Result of an export.

    Args:
        nodes: number of nodes of the graph.
        opset: version of ONNX's operators.
        weights_bytes: size of all stored tensors.
        data: name of the file with the large tensors; empty if the model holds them itself.
    """

    nodes: int
    opset: int
    weights_bytes: int
    data: str = ""


def save_onnx(
    graph: RuntimeGraph, path: Path, *, round_results: bool = False, largest_bytes: int = LARGEST_BYTES
) -> OnnxFile:
    """Write a built graph as an ONNX file, which appears whole or not at all.

    Args:
        round_results: round the results of int8 convolutions, too, where the quantised graph has scales for them: other
            runtimes then compute every layer with bytes, which is faster and less exact.
        largest_bytes: size of stored tensors beyond which the large ones go to ``NAME.onnx.data``.

    Raises:
        UnsupportedOperatorError: every operator that ONNX cannot express, with the reason.
        ModelFormatError: the package ``onnx`` is missing.
        EngineError: the files cannot be written.
    """
    library()
    to, ports = _translated(graph, round_results=round_results)
    weights = sum(array.nbytes for array in to.stored.values())
    result = OnnxFile(nodes=len(to.graph.nodes), opset=to.opset, weights_bytes=weights)
    names = [_size_names(each) for each in ports]
    if weights <= largest_bytes:
        content = model_proto(to, graph.name, names).SerializeToString()
        replace_file(path, lambda out: out.write(content))
        return result
    data = file_name(path) + DATA_SUFFIX
    messages: list[Any] = []

    def write_tensors(out: BinaryIO) -> None:
        messages.append(model_proto(to, graph.name, names, (data, out)))

    replace_files(
        (os.fspath(path) + DATA_SUFFIX, write_tensors), (path, lambda out: out.write(messages[0].SerializeToString()))
    )
    return replace(result, data=data)


def to_model(graph: RuntimeGraph, *, round_results: bool = False) -> Any:
    """Return a built graph as a ``ModelProto``; options and errors are those of ``save_onnx``."""
    library()
    to, ports = _translated(graph, round_results=round_results)
    return model_proto(to, graph.name, [_size_names(each) for each in ports])


def _translated(graph: RuntimeGraph, *, round_results: bool = False) -> tuple[Writer, list[Port]]:
    """Return the writer with the nodes of a graph, and its ports in the order of the file."""
    to = Writer()
    for name in {port.name for port in (*graph.inputs, *graph.outputs)}:
        to.fresh(name)
    names = {port.operand: port.name for port in graph.outputs}
    writer = GraphWriter(to, names, round_results=round_results)
    for port in graph.inputs:
        if port.spec is None:
            raise UnsupportedOperatorError(
                f"input '{port.name}' is not a tensor of known rank and dtype, so ONNX cannot declare it"
            )
        writer.values[port.operand] = Value(to, port.name, port.spec.dtype, port.spec.shape)
    to.graph.inputs = list(writer.values.values())
    writer.write(graph.operators)
    ends = [op for op in graph.source.operators if op.type == "pnnx.Output"]
    results = [leaf for op in ends for leaf in flattened(writer.values[op.inputs[0]])]
    for port, result in zip(graph.outputs, results, strict=True):
        to.graph.outputs.append(_output(to, port, result))
    to.prune()
    return to, [*graph.inputs, *graph.outputs]


def _output(to: Writer, port: Port, result: Operand) -> Value:
    """Return the value of an output under its name."""
    if result is None or isinstance(result, str):
        raise EngineError("ONNX has no outputs of this kind", where=f"output '{port.name}'", found=repr(result))
    value = to.tensor(result)
    spec = port.spec or (value.spec if isinstance(value.spec, TensorSpec) else None)
    if to.public(value.name) != port.name or value in to.graph.outputs:
        to.scope = port.name
        value = to.op("Identity", value)
        to.rename(value, port.name)
    return value if spec is None else replace(value, sizes=spec.shape, dtype=spec.dtype)


def _size_names(port: Port) -> list[str | None]:
    """Return the names of the dynamic dimensions of a port, None for known ones."""
    if port.spec is None:
        return []
    given = port.size_names or (None,) * port.spec.rank
    return [
        None if size is not None else name or f"{port.name}_{axis}"
        for axis, (size, name) in enumerate(zip(port.spec.shape, given, strict=True))
    ]
