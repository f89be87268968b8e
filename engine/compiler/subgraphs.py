"""Subgraphs of control-flow operators, which are compiled by themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from engine.compiler.stages import STAGE
from engine.graph import RuntimeOperator
from engine.graph.building.subgraphs import Subgraph
from engine.layers.control.subgraphs import WithSubgraphs
from engine.tensor import TensorSpec


class RunnableSubgraph(Protocol):
    """Subgraph as its operator's layer uses it."""

    @property
    def count(self) -> int:
        """Return the number of its inputs."""

    def infer(self, inputs: Sequence[object]) -> list[object]:
        """Return what is known of its results."""

    def run(self, inputs: Sequence[object]) -> list[object]:
        """Run the subgraph and return its results."""

    def prepare(self, specs: Sequence[TensorSpec] | None) -> None:
        """Compile it for these operands, or for typical ones if values decide their sizes; if that is possible."""

    def annotate(self, operators: Sequence[dict[str, Any]]) -> None:
        """Write the kernels of its operators into their descriptions."""

    def close(self) -> None:
        """Release memory and threads."""


CompileSubgraph = Callable[[Subgraph], RunnableSubgraph]


class Subgraphs:
    """Subgraphs of a graph's operators, each made ready once for all programs.

    Args:
        compiles: makes a subgraph ready; None for subgraphs that the reference runs.
    """

    def __init__(self, compiles: CompileSubgraph | None) -> None:
        self._compiles = compiles
        self._ready: dict[int, tuple[Subgraph, RunnableSubgraph]] = {}
        self._stages: list[tuple[frozenset[str], RunnableSubgraph]] = []

    def compiled(self, op: RuntimeOperator) -> RuntimeOperator:
        """Return an operator whose subgraphs are compiled; unchanged where it has none."""
        subgraphs = subgraphs_of(op)
        if not subgraphs or self._compiles is None or op.layer is None:
            return op
        layer: Any = op.layer.layer
        ready = tuple((name, self._made(op, subgraph)) for name, subgraph in subgraphs)
        layer = replace(layer, annotations=replace(layer.annotations, subgraphs=ready))
        return RuntimeOperator(op.source, op.inputs, op.outputs, replace(op.layer, layer=layer), op.index)

    def prepare(self, operators: Iterable[RuntimeOperator], values: Mapping[str, object]) -> None:
        """Compile subgraphs before their first run.

        Args:
            operators: as ``compiled`` returned them.
            values: what is known of every operand.
        """
        for op in operators:
            if isinstance(op.definition, WithSubgraphs) and self._compiles is not None:
                for subgraph, given in op.definition.subgraph_inputs([values[each.name] for each in op.inputs]):
                    specs = [each for each in given if isinstance(each, TensorSpec)]
                    if len(specs) == len(given):
                        subgraph.prepare(specs if all(each.is_static for each in specs) else None)

    def _made(self, op: RuntimeOperator, subgraph: Subgraph) -> RunnableSubgraph:
        assert self._compiles is not None
        key = id(subgraph.source)  # unrolled iterations share the source of their subgraphs
        if key not in self._ready:
            self._ready[key] = subgraph, self._compiles(subgraph)
            if op.type == STAGE:
                self._stages.append((frozenset(each.name for each in subgraph.operators), self._ready[key][1]))
        return self._ready[key][1]

    def annotate_stages(self, operators: Sequence[dict[str, Any]]) -> None:
        """Write the kernels of operators that run in a stage into their descriptions."""
        for names, subgraph in list(self._stages):
            rows = [row for row in operators if row["name"] in names and "kernel" in row]
            for row in rows:
                row.pop("why", None)
            subgraph.annotate(rows)

    def close(self) -> None:
        """Release memory and threads; a later run makes new ones."""
        for _, ready in list(self._ready.values()):
            ready.close()


def subgraphs_of(op: RuntimeOperator) -> tuple[tuple[str, Any], ...]:
    """Return the subgraphs of an operator, by name."""
    return op.definition.annotations.subgraphs if isinstance(op.definition, WithSubgraphs) else ()
