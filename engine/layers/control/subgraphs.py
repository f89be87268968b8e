"""Operators that run graphs of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.errors import ParameterError, ShapeError
from engine.layers.definition.layer import NO_ANNOTATIONS, Annotations, Layer
from engine.layers.definition.registry import register


class WithSubgraphs(Layer):
    """Base of operators that run graphs of their own."""

    takes_unknown = True
    loops = True
    has_subgraphs = True
    infers_itself = True

    annotations: Annotations = NO_ANNOTATIONS

    def subgraph(self, name: str) -> Any:
        """Return a subgraph by its name.

        Raises:
            ParameterError: it is missing, because file pairs have no subgraphs.
        """
        for each, body in self.annotations.subgraphs:
            if each == name:
                return body
        raise ParameterError(f"the subgraph '{name}' is missing", expected="an ONNX file: a pair has no subgraphs")

    @property
    def count(self) -> int:
        """Number of results."""
        return len(self.annotations.outputs)

    def subgraph_inputs(self, operands: Sequence[Any]) -> list[tuple[Any, Sequence[Any]]]:
        """Return each subgraph with the specs of its inputs, valid for every iteration.

        Args:
            operands: specs of the operator's operands.
        """
        return []

    def results(self, values: Sequence[Any]) -> Any:
        """Return one result by itself, several as a tuple.

        Raises:
            ShapeError: the subgraph has another number of results.
        """
        if len(values) != self.count:
            raise ShapeError("the subgraph has another number of results", found=len(values), expected=self.count)
        return values[0] if self.count == 1 else tuple(values)


@register("engine.Stage")
class Stage(WithSubgraphs):
    """Part of a graph that runs as a graph of its own, because its sizes depend on values computed before it."""

    def subgraph_inputs(self, operands: Sequence[Any]) -> list[tuple[Any, Sequence[Any]]]:
        return [(self.subgraph("body"), operands)]

    def infer(self, *operands: Any) -> Any:
        return self.results(self.subgraph("body").infer(operands))

    def forward(self, *operands: Any) -> Any:
        return self.results(self.subgraph("body").run(operands))
