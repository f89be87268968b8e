"""Models read from their files (a pair, an ONNX file or a bundle), and checked without running them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np

from engine import pnnx
from engine.bundle import is_bundle, open_bundle
from engine.errors import EngineError
from engine.graph import GraphWarning, RuntimeGraph
from engine.graph.building.linking import BOUNDARY_TYPES, bind_operator
from engine.layers import Registry, registry
from engine.pnnx.param import parse_param
from engine.tensor import Array
from engine.toolchain import admit


def load(
    param: str | os.PathLike[str],
    bin: str | os.PathLike[str] | None = None,
    *,
    strict: bool = False,
    verify: bool = False,
) -> RuntimeGraph:
    """Read a PNNX pair or an ONNX file and build its graph: RuntimeGraph, init(), build(). Or read a bundle.

    Args:
        param: path of the ``.pnnx.param`` file, of an ``.onnx`` file (extra ``onnx``), or of the folder of a bundle.
            All files of a bundle are checked against its manifest, and its code is run: see docs/security.md.
        bin: path of the ``.pnnx.bin`` file; by default in the folder of ``param``. Its weights are read now; later
            changes of the file have no effect.
        strict: refuse a graph with warnings: contradictions of the file's shapes, suspected export errors.
        verify: check the CRC-32 of all weights.

    Raises:
        BundleError: the bundle is damaged, altered, untrusted, or for another machine or engine.
        EngineError: the pair is damaged, uses unknown operators or contradicts itself.
    """
    graph = read(param, bin, verify=verify)
    graph.build(strict=strict)
    return graph


def read(
    param: str | os.PathLike[str],
    bin: str | os.PathLike[str] | None = None,
    *,
    verify: bool = False,
    registry: Registry = registry,
) -> RuntimeGraph:
    """Read the files of a model; the graph still needs build(). Arguments and errors are those of load()."""
    if bin is None and is_bundle(param):
        return RuntimeGraph.from_bundle(open_bundle(param, admit), registry=registry)
    graph = RuntimeGraph(param, bin, registry=registry)
    graph.init(verify=verify)
    return graph


def compose(lines: Sequence[str], tensors: Mapping[str, Array], name: str) -> RuntimeGraph:
    """Build a graph from lines of a ``.pnnx.param`` file and its tensors in memory.

    Args:
        lines: one operator each, without the header of the file.
        tensors: the stored tensors by name, as in ``conv.weight``.
        name: name of the graph.

    Raises:
        EngineError: a line is malformed, a tensor is missing, or the graph cannot be built.
    """
    outputs = sum(int(line.split()[3]) for line in lines)
    param = parse_param("\n".join(["7767517", f"{len(lines)} {outputs}", *lines, ""]).encode(), name)
    for operator, declared in zip(param.graph.operators, param.declarations, strict=True):
        for key in declared:
            data = np.ascontiguousarray(tensors[f"{operator.name}.{key}"])
            operator.attributes[key] = pnnx.Attribute(data.shape, data.dtype, data)
    graph = RuntimeGraph.from_source(param.graph, name)
    graph.build()
    return graph


def check(
    param: str | os.PathLike[str],
    bin: str | os.PathLike[str] | None = None,
    *,
    strict: bool = False,
    registry: Registry = registry,
) -> list[EngineError | GraphWarning]:
    """Return every reason why a model cannot be served; there is no error exactly if load() with ``verify`` succeeds.

    The files are read as load() reads them, every operator is bound by itself, then the graph is built.

    Args:
        param, bin: as for load().
        strict: whether warnings are errors.

    Returns:
        Errors, which forbid serving, then warnings: mismatches of computed and annotated shapes, export errors.
        str() gives the message of each.
    """
    try:
        graph = read(param, bin, verify=True, registry=registry)
        if problems := _operator_problems(graph.source, registry):
            return list(problems)
        graph.build()
    except EngineError as error:
        return [error]
    return [warning.as_error() if strict else warning for warning in graph.warnings]


def _operator_problems(source: pnnx.Graph, registry: Registry) -> list[EngineError]:
    problems: list[EngineError] = []
    operators = [op for op in source.operators if op.type not in BOUNDARY_TYPES]
    try:
        registry.check([(op.type, op.name) for op in operators])
    except EngineError as error:
        problems.append(error)
    for op in operators:
        if op.type in registry:
            try:
                bind_operator(op, source.annotations, registry)
            except EngineError as error:
                problems.append(error)
    return problems
