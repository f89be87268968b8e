"""Layers that a changed graph takes over from the one it was made from."""

from __future__ import annotations

from collections.abc import Iterable

from engine import pnnx
from engine.graph.operand import RuntimeOperand
from engine.graph.operator import RuntimeOperator
from engine.layers import BoundLayer
from engine.tensor import TensorSpec


def reused_layers(operators: Iterable[RuntimeOperator], source: pnnx.Graph) -> dict[int, BoundLayer]:
    """id() of an operator of ``source`` -> the layer of the operator it was made from.

    An operator may have been given other operands by name, but nothing a layer is made from may differ: type,
    parameters, attributes, labels, and what the file says of its operands.
    """
    old = {op.name: op for op in operators if op.layer is not None}
    reused: dict[int, BoundLayer] = {}
    for op in source.operators:
        before = old.get(op.name)
        if before is not None and before.layer is not None and _is_same(before, op, source):
            reused[id(op)] = before.layer
    return reused


def _is_same(before: RuntimeOperator, op: pnnx.Operator, source: pnnx.Graph) -> bool:
    made_alike = (
        before.source.type == op.type
        and before.source.params is op.params
        and before.source.attributes is op.attributes
        and before.source.labels == op.labels
    )
    return (
        made_alike
        and _annotations(before.inputs) == [source.annotations.get(name) for name in op.inputs]
        and _annotations(before.outputs) == [source.annotations.get(name) for name in op.outputs]
    )


def _annotations(operands: Iterable[RuntimeOperand]) -> list[TensorSpec | None]:
    return [operand.annotation for operand in operands]
