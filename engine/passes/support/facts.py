"""Proven facts about a graph before it runs.

A built graph has a shape, dtype or value for most operands, but not all of it is proven: where a layer cannot infer its
result, the graph uses the file's annotation, which may hold for one run only (the number of nonzero elements). Passes
act on proven facts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.cancellation import cancellable_quick
from engine.expression import Input, List
from engine.graph import RuntimeGraph, RuntimeOperand, RuntimeOperator
from engine.layers.creation.container import Constant, Expression, ListConstruct, TupleConstruct
from engine.layers.definition.bound import Source
from engine.layers.definition.known import is_repeatable
from engine.layers.elementwise.identity import Dropout, RawIdentity
from engine.tensor import UNKNOWN, Array, TensorSpec, is_known


class Facts:
    """Proven facts about a built graph's operands.

    Args:
        graph: a built graph; its inputs are as annotated.
    """

    def __init__(self, graph: RuntimeGraph) -> None:
        self._doubtful: set[str] = set()
        for op in cancellable_quick(graph.operators):
            taken_over = op.type != "pnnx.Input" and any(_is_annotation(operand) for operand in op.outputs)
            if taken_over or any(operand.name in self._doubtful for operand in op.inputs):
                self._doubtful.update(operand.name for operand in op.outputs)

    def spec(self, operand: RuntimeOperand) -> TensorSpec | None:
        """Return shape and dtype of a tensor; None for other values and if they are not proven."""
        return None if operand.name in self._doubtful else operand.spec

    def known(self, operand: RuntimeOperand) -> object:
        """Return all that is proven of a value: a TensorSpec, the value itself if it is not a tensor, or UNKNOWN."""
        return UNKNOWN if operand.name in self._doubtful else operand.value

    def value(self, operand: RuntimeOperand) -> object:
        """Return a proven value, a stored tensor or a Python value; else UNKNOWN."""
        if (stored := stored_tensor(operand)) is not None:
            return stored
        value = self.known(operand)
        return value if is_known(value) else UNKNOWN

    def argument(self, op: RuntimeOperator, name: str) -> Any:
        """Return the value of a layer's operand by its name, whether it is an input, an attribute or a default."""
        source = source_of(op, name)
        if source is None:
            return UNKNOWN
        return source.constant if source.index is None else self.value(op.inputs[source.index])


def stored_tensor(operand: RuntimeOperand) -> Array | None:
    """Return the tensor of an operand that a pnnx.Attribute makes."""
    op = operand.producer
    if op is None or op.layer is None or not isinstance(op.definition, Constant):
        return None
    value = op.layer.positional[0].constant
    return value if isinstance(value, np.ndarray) else None


def source_of(op: RuntimeOperator, name: str) -> Source | None:
    """Return the source of a layer's named operand; None for layers with any number of operands."""
    if op.layer is None or op.layer.signature.is_variadic:
        return None
    return dict(zip(op.layer.signature.operands, op.layer.positional, strict=True)).get(name)


def input_named(op: RuntimeOperator, name: str) -> RuntimeOperand | None:
    """Return the operand with a name, if it comes from another operator."""
    source = source_of(op, name)
    return None if source is None or source.index is None else op.inputs[source.index]


def is_static(op: RuntimeOperator) -> bool:
    """Return whether all parameters of an operator are known: none arrives as an operand."""
    return op.layer is not None and not op.layer.dynamic


def is_pure(op: RuntimeOperator) -> bool:
    """Return whether an operator always gives the same outputs for the same inputs.

    Layers from outside this package are not pure. Dropout in training is random in PyTorch, and left alone.
    """
    return op.definition is not None and is_repeatable(op.definition) and not trains(op)


def trains(op: RuntimeOperator) -> bool:
    """Return whether an operator is a dropout that is not known to be in inference mode."""
    layer = op.definition
    if isinstance(layer, Dropout):
        return bool(layer.training) or not is_static(op)
    return isinstance(layer, RawIdentity) and "dropout" in op.type and op.inputs[-1].value is not False


def only_consumer(operand: RuntimeOperand) -> RuntimeOperator | None:
    """Return the one operator that uses an operand, even repeatedly; None if there are several, or it is an output."""
    users = {id(op): op for op in operand.consumers}
    (op,) = users.values() if len(users) == 1 else (None,)
    return op if op is not None and op.layer is not None else None


def packed(operand: RuntimeOperand) -> tuple[RuntimeOperand, ...] | None:
    """Return the items of a tuple or list; None if unknown."""
    maker = operand.producer
    layer = None if maker is None else maker.definition
    if maker is not None and isinstance(layer, (TupleConstruct, ListConstruct)):
        return maker.inputs
    if maker is None or not isinstance(layer, Expression) or not isinstance(layer.tree, List) or layer.shapes:
        return None
    items = [maker.inputs[each.index] for each in layer.tree.items if isinstance(each, Input)]
    return tuple(items) if len(items) == len(layer.tree.items) else None


def _is_annotation(operand: RuntimeOperand) -> bool:
    """Return whether an operand's description is only the file's annotation."""
    return operand.annotation is not None and operand.value is operand.annotation
