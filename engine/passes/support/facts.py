"""What is certain of a graph before it runs.

A built graph knows a shape, dtype or value of most operands. Not all of it is proven: where a layer cannot tell what it
returns, the graph takes the file's word for it, and the file may speak of one run only (how many elements were not
zero). Passes act on what is proven.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.graph import RuntimeGraph, RuntimeOperand, RuntimeOperator
from engine.layers.creation.container import Constant
from engine.layers.definition.bound import Source
from engine.layers.definition.known import is_repeatable
from engine.layers.elementwise.identity import Dropout, RawIdentity
from engine.stopping import wanted_quick
from engine.tensor import UNKNOWN, Array, TensorSpec, is_known


class Facts:
    """What is certain of a built graph's operands.

    Args:
        graph: a built graph; its inputs are as they are annotated.
    """

    def __init__(self, graph: RuntimeGraph) -> None:
        self._doubtful: set[str] = set()
        for op in wanted_quick(graph.operators):
            taken_over = op.type != "pnnx.Input" and any(_is_annotation(operand) for operand in op.outputs)
            if taken_over or any(operand.name in self._doubtful for operand in op.inputs):
                self._doubtful.update(operand.name for operand in op.outputs)

    def spec(self, operand: RuntimeOperand) -> TensorSpec | None:
        """Shape and dtype of a tensor; None for other values and where they are not certain."""
        return None if operand.name in self._doubtful else operand.spec

    def known(self, operand: RuntimeOperand) -> object:
        """All that is certain of a value: a TensorSpec, the value itself if it is no tensor, or UNKNOWN."""
        return UNKNOWN if operand.name in self._doubtful else operand.value

    def value(self, operand: RuntimeOperand) -> object:
        """The value where it is certain, be it a stored tensor or a Python value; else UNKNOWN."""
        if (stored := stored_tensor(operand)) is not None:
            return stored
        value = self.known(operand)
        return value if is_known(value) else UNKNOWN

    def argument(self, op: RuntimeOperator, name: str) -> Any:
        """The value of an operand of a layer by its name, whether it is an input, an attribute or a default."""
        source = source_of(op, name)
        if source is None:
            return UNKNOWN
        return source.constant if source.index is None else self.value(op.inputs[source.index])


def stored_tensor(operand: RuntimeOperand) -> Array | None:
    """The tensor of an operand that a pnnx.Attribute makes."""
    op = operand.producer
    if op is None or op.layer is None or not isinstance(op.definition, Constant):
        return None
    value = op.layer.positional[0].constant
    return value if isinstance(value, np.ndarray) else None


def source_of(op: RuntimeOperator, name: str) -> Source | None:
    """Where a named operand of a layer comes from; None for layers that take any number of them."""
    if op.layer is None or op.layer.signature.is_variadic:
        return None
    return dict(zip(op.layer.signature.operands, op.layer.positional, strict=True)).get(name)


def input_named(op: RuntimeOperator, name: str) -> RuntimeOperand | None:
    """The operand that arrives under a name, if it comes from another operator."""
    source = source_of(op, name)
    return None if source is None or source.index is None else op.inputs[source.index]


def is_static(op: RuntimeOperator) -> bool:
    """Whether all parameters of an operator are known: none arrives as an operand."""
    return op.layer is not None and not op.layer.dynamic


def is_pure(op: RuntimeOperator) -> bool:
    """Whether an operator always gives the same outputs for the same inputs.

    Of layers from outside this package nothing is known. Dropout that trains is random in PyTorch, and left alone.
    """
    return op.definition is not None and is_repeatable(op.definition) and not trains(op)


def trains(op: RuntimeOperator) -> bool:
    """Whether an operator is a dropout that is not known to be at inference."""
    layer = op.definition
    if isinstance(layer, Dropout):
        return bool(layer.training) or not is_static(op)
    return isinstance(layer, RawIdentity) and "dropout" in op.type and op.inputs[-1].value is not False


def only_consumer(operand: RuntimeOperand) -> RuntimeOperator | None:
    """The one operator that uses an operand, however often; None if there are several or the graph returns it."""
    users = {id(op): op for op in operand.consumers}
    (op,) = users.values() if len(users) == 1 else (None,)
    return op if op is not None and op.layer is not None else None


def _is_annotation(operand: RuntimeOperand) -> bool:
    """Whether all that is known of an operand is the file's word."""
    return operand.annotation is not None and operand.value is operand.annotation
