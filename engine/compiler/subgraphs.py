"""Subgraphs of control-flow operators, which are compiled by themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from engine.compiler.stages import STAGE
from engine.graph import RuntimeOperator
from engine.graph.building.bodies import Body
from engine.layers.onnx.control.control import Bodied
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

    def prepare(self, specs: Sequence[TensorSpec]) -> None:
        """Compile it for these operands, if that is possible."""

    def annotate(self, operators: Sequence[dict[str, Any]]) -> None:
        """Write the kernels of its operators into their descriptions."""

    def close(self) -> None:
        """Release memory and threads."""


CompileSubgraph = Callable[[Body], RunnableSubgraph]


class Subgraphs:
    """Subgraphs of a graph's operators, each made ready once for all programs.

    Args:
        compiles: makes a subgraph ready; None for subgraphs that the reference runs.
    """

    def __init__(self, compiles: CompileSubgraph | None) -> None:
        self._compiles = compiles
        self._ready: dict[int, tuple[Body, RunnableSubgraph]] = {}
        self._stages: list[tuple[frozenset[str], RunnableSubgraph]] = []

    def compiled(self, op: RuntimeOperator) -> RuntimeOperator:
        """Return an operator whose subgraphs are compiled; unchanged where it has none."""
        bodies = subgraphs_of(op)
        if not bodies or self._compiles is None or op.layer is None:
            return op
        layer: Any = op.layer.layer
        ready = tuple((name, self._made(op, body)) for name, body in bodies)
        layer = replace(layer, annotations=replace(layer.annotations, bodies=ready))
        return RuntimeOperator(op.source, op.inputs, op.outputs, replace(op.layer, layer=layer), op.index)

    def prepare(self, operators: Iterable[RuntimeOperator], values: Mapping[str, object]) -> None:
        """Compile subgraphs before their first run.

        Args:
            operators: as ``compiled`` returned them.
            values: what is known of every operand.
        """
        for op in operators:
            if isinstance(op.definition, Bodied) and self._compiles is not None:
                for body, given in op.definition.handed([values[each.name] for each in op.inputs]):
                    specs = [each for each in given if isinstance(each, TensorSpec) and each.is_static]
                    if len(specs) == len(given):
                        body.prepare(specs)

    def _made(self, op: RuntimeOperator, body: Body) -> RunnableSubgraph:
        assert self._compiles is not None
        key = id(body.source)  # unrolled iterations share the source of their bodies
        if key not in self._ready:
            self._ready[key] = body, self._compiles(body)
            if op.type == STAGE:
                self._stages.append((frozenset(each.name for each in body.operators), self._ready[key][1]))
        return self._ready[key][1]

    def annotate_stages(self, operators: Sequence[dict[str, Any]]) -> None:
        """Write the kernels of operators that run in a stage into their descriptions."""
        for names, body in list(self._stages):
            rows = [row for row in operators if row["name"] in names and "kernel" in row]
            for row in rows:
                row.pop("why", None)
            body.annotate(rows)

    def close(self) -> None:
        """Release memory and threads; a later run makes new ones."""
        for _, ready in list(self._ready.values()):
            ready.close()


def subgraphs_of(op: RuntimeOperator) -> tuple[tuple[str, Any], ...]:
    """Return the subgraphs of an operator, by name."""
    return op.definition.annotations.bodies if isinstance(op.definition, Bodied) else ()
