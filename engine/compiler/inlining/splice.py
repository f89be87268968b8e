"""A source being written: operators of a graph, and those of bodies between them, under names of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from engine.pnnx import Attribute, Graph, Operator
from engine.pnnx.graph import Parameter
from engine.tensor import Array, TensorSpec

# Names of bodies inside of bodies would grow with every turn.
_LONGEST: Final = 120


class Splice:
    """Operators of a graph, some of them bodies."""

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
        """The graph as it was written so far."""
        return replace(self._source, operators=self._operators, annotations=self._annotations)

    def names(self, operands: Iterable[str]) -> list[str]:
        """What operands of the graph are called where others stand for them."""
        return [self._same.get(name, name) for name in operands]

    def add(self, op: Operator) -> None:
        """Append an operator of the graph."""
        inputs = tuple(self.names(op.inputs))
        self._operators.append(op if inputs == op.inputs else replace(op, inputs=inputs))

    def stand_for(self, operand: str, name: str) -> None:
        """Whoever takes an operand, that nothing makes any more, takes another one."""
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
            output: of the graph, that it makes; by default a new one.
        """
        name = _fresh(prefix, self._names)
        output = output or _fresh(prefix, self._operands)
        self._operators.append(
            Operator(type, name, tuple(inputs), (output,), dict(params or {}), dict(attributes or {}))
        )
        return output

    def constant(self, value: Array) -> str:
        """An operand that is a tensor known now."""
        data = np.ascontiguousarray(value).reshape(value.shape)
        data.flags.writeable = False
        key = (data.dtype.str, data.shape, data.tobytes())
        if key not in self._constants:
            stored = {"data": Attribute(data.shape, data.dtype, data)}
            self._constants[key] = self.make("pnnx.Attribute", "known", (), attributes=stored)
        return self._constants[key]

    def branch(self, prefix: str, body: Any, given: Sequence[str], outputs: Sequence[str]) -> None:
        """Append a body, which makes operands of the graph.

        Args:
            given: what it takes.
            outputs: of the graph, what its results are.
        """
        names = dict(zip(body.operands, given, strict=True))
        for outer, inner in zip(outputs, body.results, strict=True):
            if inner in names:  # nothing computes it, or it is a result already
                self.stand_for(outer, names[inner])
            else:
                self._annotations.pop(outer, None)
                names[inner] = outer
        self._insert(prefix, body.source, names)

    def turn(self, prefix: str, body: Any, given: Sequence[str]) -> list[str]:
        """Append a body, and return what its results are called."""
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
