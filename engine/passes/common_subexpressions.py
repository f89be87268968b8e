"""Operators that compute the same thing twice."""

from __future__ import annotations

from typing import TypeAlias

from engine.graph import RuntimeGraph, RuntimeOperator
from engine.passes.facts import is_pure
from engine.passes.rewriting import Rewriter
from engine.pnnx import Graph

Key: TypeAlias = tuple[object, ...]


def common_subexpressions(graph: RuntimeGraph) -> Graph:
    """Let the users of an operator take the outputs of an earlier one of equal type, operands, parameters and data.

    Random operators are never taken for one another.
    """
    rewriter = Rewriter(graph)
    seen: dict[Key, list[RuntimeOperator]] = {}
    for op in graph.operators:
        if not is_pure(op):
            continue
        alike = seen.setdefault(_key(op, rewriter), [])
        earlier = next((other for other in alike if _is_equal(op, other)), None)
        if earlier is None:
            alike.append(op)
            continue
        replaced = [rewriter.stand_in(*pair) for pair in zip(op.outputs, earlier.outputs, strict=True)]
        if all(replaced):
            rewriter.drop(op)
    return rewriter.result()


def _key(op: RuntimeOperator, rewriter: Rewriter) -> Key:
    """What is cheap to compare; 1, 1.0 and True are spelled differently, and so are zeros of either sign."""
    params = sorted((name, repr(value)) for name, value in op.params.items())
    attributes = sorted((name, each.shape, each.code) for name, each in op.attributes.items())
    inputs = tuple(rewriter.resolved(operand.name) for operand in op.inputs)
    return (op.type, inputs, op.source.labels, len(op.outputs), tuple(params), tuple(attributes))


def _is_equal(op: RuntimeOperator, other: RuntimeOperator) -> bool:
    """Whether the data is equal, and what the file says of the operands where the layers ask for it."""
    if op.layer is None or other.layer is None or op.attributes != other.attributes:
        return False
    return op.layer.signature.annotations_field is None or op.layer.layer == other.layer.layer
