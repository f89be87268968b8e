"""Everything that is wrong with a model, at once, without running it."""

from __future__ import annotations

import os

from engine import onnx, pnnx
from engine.errors import EngineError
from engine.graph import GraphWarning, RuntimeGraph
from engine.graph.building.linking import BOUNDARY_TYPES, bind_operator
from engine.layers import Registry, registry


def check(
    param: str | os.PathLike[str],
    bin: str | os.PathLike[str] | None = None,
    *,
    strict: bool = False,
    registry: Registry = registry,
) -> list[EngineError | GraphWarning]:
    """Whether a PNNX pair, or an ONNX file, can be served, and if not, every reason.

    The archive's checksums are verified, every operator is tried by itself, then the graph is built.

    Args:
        strict: whether what is otherwise a warning is an error too.

    Returns:
        Errors, which forbid serving, then warnings: mismatches between computed and annotated shapes, suspected losses.
        Each says what it is about with str().
    """
    try:
        source = onnx.read(param) if onnx.is_onnx(param) else pnnx.read(param, bin, verify=True)
    except EngineError as error:
        return [error]
    problems = _operator_problems(source, registry)
    if problems:
        return list(problems)
    graph = RuntimeGraph.from_source(source, registry=registry)
    try:
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
