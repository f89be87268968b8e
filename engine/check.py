"""Everything that is wrong with a model, at once, without running it."""

from __future__ import annotations

import os

from engine import pnnx
from engine.errors import EngineError
from engine.graph import GraphWarning
from engine.graph.building.linking import BOUNDARY_TYPES, bind_operator
from engine.layers import Registry, registry
from engine.loading import read


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
        strict: whether what is otherwise a warning is an error too.

    Returns:
        Errors, which forbid serving, then warnings: mismatches of computed and annotated shapes, export errors.
        Each says what it is about with str().
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
