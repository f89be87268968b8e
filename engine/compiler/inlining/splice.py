"""Source being written: operators of a graph, and those of inlined subgraphs under new names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from engine.pnnx import Attribute, Graph, Operator
from engine.pnnx.graph import Parameter
from engine.tensor import Array, TensorSpec

# Names in nested subgraphs would grow with every iteration.
_LONGEST: Final = 120


class Splice:
    """Operators of a graph and of inlined subgraphs."""

    def __init__(self, source: Graph) -> None:
        self._source = source
        self._operators: list[Operator] = []
        self._annotations = dict(source.annotations)
        self._names = {op.name for op in source.operators}
        self._operands = {name for op in source.operators for name in op.outputs}
        self._same: dict[str, str] = {}
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    @property
    def source(self) -> Graph:
        """Return the graph written so far."""
        return replace(self._source, operators=self._operators, annotations=self._annotations)

    def names(self, operands: Iterable[str]) -> list[str]:
        """Return the current names of operands of the graph."""
        return [self._same.get(name, name) for name in operands]

    def add(self, op: Operator) -> None:
        """Append an operator of the graph."""
        inputs = tuple(self.names(op.inputs))
        self._operators.append(op if inputs == op.inputs else replace(op, inputs=inputs))

    def replace_operand(self, operand: str, name: str) -> None:
        """Replace an operand by another one."""
        self._annotations.pop(operand, None)
        self._same[operand] = name

    def make(
        self,
        type: str,
        prefix: str,
        inputs: Sequence[str],
        output: str = "",
        *,
        params: Mapping[str, Parameter] | None = None,
        attributes: Mapping[str, Attribute] | None = None,
    ) -> str:
        """Append a new operator with one result.

        Args:
            output: operand of the graph that it produces; by default a new one.
        """
        name = _fresh(prefix, self._names)
        output = output or _fresh(prefix, self._operands)
        self._operators.append(
            Operator(type, name, tuple(inputs), (output,), dict(params or {}), dict(attributes or {}))
        )
        return output

    def constant(self, value: Array) -> str:
        """Return an operand with a constant tensor."""
        data = np.ascontiguousarray(value).reshape(value.shape)
        data.flags.writeable = False
        key = (data.dtype.str, data.shape, data.tobytes())
        if key not in self._constants:
            stored = {"data": Attribute(data.shape, data.dtype, data)}
            self._constants[key] = self.make("pnnx.Attribute", "known", (), attributes=stored)
        return self._constants[key]

    def branch(self, prefix: str, body: Any, given: Sequence[str], outputs: Sequence[str]) -> None:
        """Append a subgraph that produces operands of the graph.

        Args:
            given: its inputs.
            outputs: operands of the graph that are its results.
        """
        names = dict(zip(body.operands, given, strict=True))
        for outer, inner in zip(outputs, body.results, strict=True):
            if inner in names:  # not computed by the subgraph, or a result already
                self.replace_operand(outer, names[inner])
            else:
                self._annotations.pop(outer, None)
                names[inner] = outer
        self._insert(prefix, body.source, names)

    def iteration(self, prefix: str, body: Any, given: Sequence[str]) -> list[str]:
        """Append a subgraph and return the names of its results."""
        names = dict(zip(body.operands, given, strict=True))
        self._insert(prefix, body.source, names)
        return [names[inner] for inner in body.results]

    def _insert(self, prefix: str, source: Graph, names: dict[str, str]) -> None:
        for op in source.operators:
            if op.type not in ("pnnx.Input", "pnnx.Output"):
                self._operators.append(self._renamed(prefix, op, names))
                for name in op.outputs:
                    self._annotate(names[name], source.annotations.get(name))

    def _annotate(self, name: str, note: TensorSpec | None) -> None:
        if note is not None and name not in self._annotations:
            self._annotations[name] = note

    def _renamed(self, prefix: str, op: Operator, names: dict[str, str]) -> Operator:
        for name in op.outputs:
            if name not in names:
                names[name] = _fresh(f"{prefix}/{name}", self._operands)
        return replace(
            op,
            name=_fresh(f"{prefix}/{op.name}", self._names),
            inputs=tuple(names[name] for name in op.inputs),
            outputs=tuple(names[name] for name in op.outputs),
        )


def _fresh(wanted: str, taken: set[str]) -> str:
    wanted = wanted[-_LONGEST:]
    name, number = wanted, 0
    while name in taken:
        number += 1
        name = f"{wanted}_{number}"
    taken.add(name)
    return name
