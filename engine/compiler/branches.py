"""Choices that the shapes of the inputs decide: the branch that is taken in the place of the operator that takes it.

Exporters write a choice for every ``if`` of a script, though most ask for a rank or a size. Among the operators around
it a branch gets its kernels as they do, and what follows it knows its shapes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from engine.errors import ShapeError
from engine.graph import RuntimeGraph, RuntimeOperator
from engine.layers.onnx.control.control import If
from engine.pnnx import Graph, Operator
from engine.tensor import TensorSpec, is_known, known_value

# Ways through a graph that are kept, those among them that lead on; more are taken run by run.
MOST_KEPT: Final = 32

Choices = tuple[tuple[str, bool], ...]


class Branches:
    """A graph, by what is chosen in it."""

    def __init__(self, graph: RuntimeGraph) -> None:
        self._graph = graph
        self._kept: dict[Choices, RuntimeGraph] = {}

    def taken(self, specs: Sequence[TensorSpec]) -> RuntimeGraph:
        """The graph with the branches that inputs of these shapes take; itself where they decide nothing.

        Raises:
            EngineError: an operator does not accept these shapes.
        """
        graph = self._graph
        choices: Choices = ()
        while found := _decided(graph, specs):
            choices = (*choices, *found.items())
            if choices not in self._kept:
                if len(self._kept) >= MOST_KEPT:
                    break
                self._kept[choices] = graph.rebuilt(_chosen(graph, found))
            graph = self._kept[choices]
        return graph


def _decided(graph: RuntimeGraph, specs: Sequence[TensorSpec]) -> dict[str, bool]:
    """Operators whose condition is known, and which branch they take."""
    choices = [op for op in graph.operators if isinstance(op.definition, If)]
    values = graph.infer(specs) if choices else {}
    found = {}
    for op in choices:
        known = known_value(values[op.inputs[0].name])
        condition = np.asarray(known) if is_known(known) else np.empty(0)
        if condition.size == 1 and _has_branch(op, bool(condition.any())):
            found[op.name] = bool(condition.any())
    return found


def _has_branch(op: RuntimeOperator, condition: bool) -> bool:
    assert isinstance(op.definition, If)
    try:
        op.definition.branch(condition)
    except ShapeError:  # as a run says
        return False
    return True


def _chosen(graph: RuntimeGraph, found: Mapping[str, bool]) -> Graph:
    """The source with branches in the place of choices."""
    inlined = _Inlined(graph.source)
    known = {op.name: op for op in graph.operators}
    for op in graph.source.operators:
        if op.name in found:
            inlined.take(known[op.name], found[op.name])
        else:
            inlined.add(op)
    return replace(graph.source, operators=inlined.operators, annotations=inlined.annotations)


class _Inlined:
    """Operators of a graph, some of them branches."""

    def __init__(self, source: Graph) -> None:
        self.operators: list[Operator] = []
        self.annotations = dict(source.annotations)
        self._names = {op.name for op in source.operators}
        self._operands = {name for op in source.operators for name in op.outputs}
        self._same: dict[str, str] = {}

    def add(self, op: Operator) -> None:
        """Append an operator."""
        inputs = tuple(self._same.get(name, name) for name in op.inputs)
        self.operators.append(op if inputs == op.inputs else replace(op, inputs=inputs))

    def take(self, op: RuntimeOperator, condition: bool) -> None:
        """Append the operators of a branch; what they make at last has the names of what the choice would make."""
        choice = op.definition
        assert isinstance(choice, If)
        body, given = choice.branch(condition), choice.captured(condition, [each.name for each in op.inputs[1:]])
        names = dict(zip(body.operands, (self._same.get(name, name) for name in given), strict=True))
        for outer, inner in zip(op.outputs, body.results, strict=True):
            self.annotations.pop(outer.name, None)
            if inner in names:  # nothing computes it, or it is a result already
                self._same[outer.name] = names[inner]
            else:
                names[inner] = outer.name
        for each in body.source.operators:
            if each.type not in ("pnnx.Input", "pnnx.Output"):
                self._inner(op.name, each, names)
        for inner, name in names.items():
            if inner in body.source.annotations and name not in self.annotations:
                self.annotations[name] = body.source.annotations[inner]

    def _inner(self, prefix: str, op: Operator, names: dict[str, str]) -> None:
        for name in op.outputs:
            if name not in names:
                names[name] = _fresh(f"{prefix}/{name}", self._operands)
        self.operators.append(
            replace(
                op,
                name=_fresh(f"{prefix}/{op.name}", self._names),
                inputs=tuple(names[name] for name in op.inputs),
                outputs=tuple(names[name] for name in op.outputs),
            )
        )


def _fresh(wanted: str, taken: set[str]) -> str:
    name, number = wanted, 0
    while name in taken:
        number += 1
        name = f"{wanted}_{number}"
    taken.add(name)
    return name
