"""Changes to a graph, collected by a pass and applied together, and the tensors that passes store in a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace as with_fields
from typing import Final

import numpy as np

from engine.graph import RuntimeGraph, RuntimeOperand, RuntimeOperator
from engine.layers.creation.container import Expression, Unpack
from engine.layers.shape.shape import Reshape
from engine.passes.support.facts import only_consumer
from engine.pnnx import Attribute, Graph, Operator
from engine.tensor import Array, TensorSpec

# These layers use annotations of their outputs only.
_ASK_OF_OUTPUTS: Final = (Expression, Unpack, Reshape)
LARGE: Final = 1 << 20
"""Bytes up to which any constant is stored."""
GROWTH: Final = 16
"""A larger constant may take this multiple of the bytes it is made from."""


class Rewriter:
    """Changes of one pass.

    Args:
        graph: a built graph; it is not modified.
    """

    def __init__(self, graph: RuntimeGraph) -> None:
        self._source = graph.source
        self._operands = graph.operands
        self._names = {name for op in graph.source.operators for name in (op.name, *op.outputs)}
        self._new: dict[str, tuple[Operator, ...]] = {}
        self._instead: dict[str, str] = {}
        self._standing_in: set[str] = set()
        self._annotations: dict[str, TensorSpec] = {}

    def replace(self, op: RuntimeOperator, *new: Operator) -> None:
        """Replace an operator by others; together they must make its outputs, unless others stand in for those."""
        self._new[op.name] = new

    def drop(self, op: RuntimeOperator) -> None:
        """Remove an operator whose outputs are no longer used."""
        self.replace(op)

    def is_touched(self, op: RuntimeOperator | None) -> bool:
        """Return whether an operator was replaced, so that facts about it are no longer valid."""
        return op is not None and op.name in self._new

    def fresh(self, wanted: str) -> str:
        """Return a name that no operator or operand has: the wanted one if it is free."""
        name, count = wanted, 1
        while name in self._names:
            name, count = f"{wanted}_{count}", count + 1
        self._names.add(name)
        return name

    def annotate(self, operand: str, spec: TensorSpec | None) -> None:
        """Set the annotation of a new operand."""
        if spec is not None and spec.shape:
            self._annotations[operand] = spec

    def only_consumer(self, operand: RuntimeOperand) -> RuntimeOperator | None:
        """Return the only consumer of an operand; None if this pass has given it further ones."""
        return None if operand.name in self._standing_in else only_consumer(operand)

    def stand_in(self, operand: RuntimeOperand, instead: RuntimeOperand) -> bool:
        """Redirect all users of an operand to another one of the same value; False if that could change their results.

        Some layers use the annotations of their inputs: for them both operands must have equal annotations.
        """
        instead = self._operands[self.resolved(instead.name)]
        if operand.annotation != instead.annotation and any(map(_asks_of_inputs, operand.consumers)):
            return False
        self._instead[operand.name] = instead.name
        self._standing_in.add(instead.name)
        return True

    def result(self) -> Graph:
        """Return the changed graph; the source itself if there was no change.

        The graph's outputs keep their operands' names where these are free.
        """
        if not self._new and not self._instead:
            return self._source
        operators = [new for op in self._source.operators for new in self._new.get(op.name, (op,))]
        operators = [_fed(op, tuple(map(self.resolved, op.inputs))) for op in operators]
        names = self._returned(operators)
        operators = [renamed(op, names) for op in operators] if names else operators
        made = {name for op in operators for name in op.outputs}
        source, taken = self._source, set(names.values())
        known = {names.get(key, key): spec for key, spec in source.annotations.items() if key not in taken}
        untyped = {names.get(key, key): shape for key, shape in source.untyped.items() if key not in taken}
        return with_fields(
            source,
            operators=operators,
            annotations={key: spec for key, spec in {**known, **self._annotations}.items() if key in made},
            untyped={key: shape for key, shape in untyped.items() if key in made},
            complex32=source.complex32 & made,
        )

    def resolved(self, name: str) -> str:
        """Return the operand that users of an operand now take."""
        passed: list[str] = []
        while name in self._instead:
            passed.append(name)
            name = self._instead[name]
        # Path compression: a long chain is walked once.
        self._instead.update(dict.fromkeys(passed, name))
        return name

    def _returned(self, operators: list[Operator]) -> dict[str, str]:
        """Return new names of operands that now stand for an output of the graph."""
        makers = {name: op for op in operators for name in op.outputs}
        outputs = [op.inputs[0] for op in self._source.operators if op.type == "pnnx.Output"]
        names: dict[str, str] = {}
        for name in outputs:
            now = self.resolved(name)
            is_free = name not in makers and now not in outputs and now not in names
            if is_free and makers[now].type != "pnnx.Input" and now not in self._source.complex32:
                names[now] = name
        return names


def _asks_of_inputs(op: RuntimeOperator) -> bool:
    if op.layer is None or op.layer.signature.annotations_field is None:
        return False
    return not isinstance(op.definition, _ASK_OF_OUTPUTS)


def _fed(op: Operator, inputs: tuple[str, ...]) -> Operator:
    return op if inputs == op.inputs else with_fields(op, inputs=inputs)


def renamed(op: Operator, names: Mapping[str, str]) -> Operator:
    """Return an operator with other names of its operands."""
    inputs, outputs = (tuple(names.get(name, name) for name in each) for each in (op.inputs, op.outputs))
    return op if (inputs, outputs) == (op.inputs, op.outputs) else with_fields(op, inputs=inputs, outputs=outputs)


def is_small_enough(made: int, made_from: int) -> bool:
    """Return whether a constant of so many bytes may be stored."""
    return made <= max(LARGE, GROWTH * made_from)


def bytes_of(value: object) -> int:
    """Return the bytes of the tensors in a value, or of those that specs announce."""
    if isinstance(value, (list, tuple)):
        return sum(map(bytes_of, value))
    if isinstance(value, np.ndarray):
        return value.nbytes
    return (value.size or 0) * value.dtype.itemsize if isinstance(value, TensorSpec) else 0


def stored(value: Array) -> Attribute:
    """Return a tensor as an attribute: contiguous and read-only."""
    data = np.ascontiguousarray(value).reshape(value.shape).view()
    data.flags.writeable = False
    return Attribute(data.shape, data.dtype, data)


def tensor(name: str, value: Array, operand: str = "") -> Operator:
    """Return an operator that makes a stored tensor."""
    return Operator("pnnx.Attribute", name, (), (operand or name,), {}, {"data": stored(value)})
