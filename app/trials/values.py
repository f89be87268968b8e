"""Values of the operators of a run, as far as they are written to memory.

The reference keeps all values. For machine code the graph is compiled again with the values between kernels as outputs,
so that the kernels stay the same; concatenations made in place are copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

import engine
from app.memory.reservation import charge
from app.trials.candidates import Build
from app.trials.sessions import Sessions

# Operator name and output index; operand names differ from file to file.
Place: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """Recorded values of a run, in execution order.

    Args:
        arrays: recorded values.
        operators: all computing operators by name, recorded or not.
        kernels: for a fused operator, the first operator of its kernel.
    """

    arrays: Mapping[Place, NDArray[Any]]
    operators: Mapping[str, engine.RuntimeOperator]
    kernels: Mapping[str, str]


def values_of(
    graph: engine.RuntimeGraph,
    session: engine.Session,
    build: Build,
    inputs: Sequence[NDArray[Any]],
    sessions: Sessions,
) -> Values:
    """Record the values of a run.

    Args:
        graph: graph to run.
        session: session of this build that has run such inputs.
        build: session options.
        inputs: inputs of the run.
        sessions: sessions of the experiment.

    Raises:
        ServiceError: there is not enough memory.
        EngineError: the graph cannot run, or not with these outputs.
    """
    operators = {op.name: op for op in graph.operators if op.inputs and op.outputs}
    is_compiled = session.backend == "compiled"
    rows = {row["name"]: row for row in session.describe()["operators"]} if is_compiled else {}
    kernels = {name: str(row["fused_into"]) for name, row in rows.items() if row.get("fused_into")}
    names = [x.name for op in operators.values() for x in op.outputs]
    if is_compiled:
        names = list(_written(graph, rows, kernels))
    charge(_bytes(graph, inputs, names))
    if is_compiled:
        part = graph.extract([port.operand for port in graph.inputs], names)
        watched = sessions.get(part, build)
        sessions.make_ready(watched, build, inputs)
        found: dict[str, Any] = dict(zip(names, watched.run(list(inputs)), strict=True))
    else:
        found = session.run(list(inputs), taps=names).taps
    arrays = {
        (op.name, at): found[operand.name]
        for op in operators.values()
        for at, operand in enumerate(op.outputs)
        if isinstance(found.get(operand.name), np.ndarray)
    }
    return Values(arrays=arrays, operators=operators, kernels=kernels)


def _written(
    graph: engine.RuntimeGraph, rows: Mapping[str, Mapping[str, Any]], kernels: Mapping[str, str]
) -> Iterator[str]:
    """Yield operands that leave the kernel that computes them, and the graph's outputs."""
    outputs = {port.operand for port in graph.outputs}
    for op in graph.operators:
        if not op.inputs:
            continue
        is_made = rows[op.name].get("kernel") not in (None, "view", "removed")
        own = kernels.get(op.name, op.name)
        for operand in op.outputs:
            leaves = any(kernels.get(user.name, user.name) != own for user in operand.consumers)
            if operand.name in outputs or (is_made and leaves):
                yield operand.name


def _bytes(graph: engine.RuntimeGraph, inputs: Sequence[NDArray[Any]], names: Sequence[str]) -> int:
    """Return the bytes of the operands whose shapes follow from the inputs."""
    known = graph.infer([engine.TensorSpec(each.shape, each.dtype) for each in inputs])
    specs = (known.get(name) for name in names)
    return sum(
        int(np.prod([dim or 1 for dim in spec.shape])) * spec.dtype.itemsize
        for spec in specs
        if isinstance(spec, engine.TensorSpec)
    )
