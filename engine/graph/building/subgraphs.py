"""Subgraphs of operators that branch or loop, built when the operator gets its layer.

Building a graph includes linking, and linking makes layers; to avoid an import cycle, runtime_graph registers how a
subgraph is built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np

from engine import pnnx
from engine.errors import GraphError, ShapeError
from engine.graph.building.inference import propagate
from engine.graph.operator import RuntimeOperator
from engine.graph.planning.plan import Plan
from engine.graph.port import Port
from engine.layers import Registry


class Built(Protocol):
    """A graph that can run."""

    @property
    def source(self) -> pnnx.Graph:
        """The source that the subgraph was built from."""

    @property
    def operators(self) -> tuple[RuntimeOperator, ...]:
        """The operators of the subgraph, in execution order."""

    @property
    def plan(self) -> Plan:
        """The plan of a run."""

    @property
    def inputs(self) -> tuple[Port, ...]:
        """The inputs of the subgraph."""


Build = Callable[[pnnx.Graph, Registry], Built]
Execute = Callable[[Plan, Sequence[object]], list[object]]

_HOW: Final[dict[str, Any]] = {}


def register_subgraph_builder(build: Build, execute: Execute) -> None:
    """Register the functions that build and run a subgraph."""
    _HOW.update(build=build, execute=execute)


class Subgraph:
    """A runnable subgraph of an operator.

    Attributes:
        graph: the built graph.
        results: names of the result operands.
    """

    def __init__(self, source: pnnx.Graph, registry: Registry) -> None:
        if not _HOW:
            raise GraphError(
                "no function that builds subgraphs is registered", expected="engine.graph.runtime_graph imported"
            )
        self.graph: Built = _HOW["build"](source, registry)
        self.results = [op.inputs[0] for op in source.operators if op.type == "pnnx.Output"]

    @property
    def count(self) -> int:
        """Number of operands."""
        return len(self.graph.inputs)

    @property
    def operators(self) -> Sequence[RuntimeOperator]:
        """The operators of the subgraph."""
        return self.graph.operators

    @property
    def source(self) -> pnnx.Graph:
        """The source as it was read."""
        return self.graph.source

    @property
    def operands(self) -> list[str]:
        """Names of the operands."""
        return [port.operand for port in self.graph.inputs]

    def infer(self, inputs: Sequence[object]) -> list[object]:
        """Return what is known of the results.

        Raises:
            EngineError: an operator does not accept what follows from these inputs.
        """
        self._check(inputs)
        known = propagate(self.graph.operators, dict(zip(self.operands, inputs, strict=True)))
        return [known[name] for name in self.results]

    def run(self, inputs: Sequence[object]) -> list[object]:
        """Return the results; none shares memory with an input that may be written to.

        Raises:
            EngineError: an operator refuses its operands or fails.
        """
        self._check(inputs)
        results: list[object] = _HOW["execute"](self.graph.plan, [_read_only(each) for each in inputs])
        return results

    def _check(self, inputs: Sequence[object]) -> None:
        if len(inputs) != self.count:
            raise ShapeError("a subgraph got the wrong number of inputs", found=len(inputs), expected=self.count)


def build_subgraphs(sources: Mapping[str, pnnx.Graph], registry: Registry) -> tuple[tuple[str, Subgraph], ...]:
    """Return the built subgraphs of an operator."""
    return tuple((name, Subgraph(source, registry)) for name, source in sources.items())


def _read_only(value: object) -> object:
    if isinstance(value, np.ndarray) and value.flags.writeable:
        value = value.view()
        value.flags.writeable = False
    return value
