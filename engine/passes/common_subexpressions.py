"""Operators that compute the same thing twice."""

from __future__ import annotations

from hashlib import blake2b
from typing import TypeAlias

from engine.graph import RuntimeGraph, RuntimeOperator
from engine.passes.support.facts import is_pure
from engine.passes.support.rewriting import Rewriter
from engine.pnnx import Graph
from engine.pnnx.graph import as_bytes
from engine.stopping import wanted_quick

Key: TypeAlias = tuple[object, ...]


def common_subexpressions(graph: RuntimeGraph) -> Graph:
    """Let the users of an operator take the outputs of an earlier one of equal type, operands, parameters and data.

    Random operators are never taken for one another.
    """
    rewriter = Rewriter(graph)
    seen: dict[Key, _Alike] = {}
    for op in wanted_quick(graph.operators):
        if not is_pure(op):
            continue
        earlier = seen.setdefault(_key(op, rewriter), _Alike()).earlier(op)
        if earlier is None:
            continue
        replaced = [rewriter.stand_in(*pair) for pair in zip(op.outputs, earlier.outputs, strict=True)]
        if all(replaced):
            rewriter.drop(op)
    return rewriter.result()


class _Alike:
    """Operators that are told apart by their data or layers alone, which are looked at where there are several."""

    def __init__(self) -> None:
        self._first: RuntimeOperator | None = None
        self._others: dict[object, list[RuntimeOperator]] = {}

    def earlier(self, op: RuntimeOperator) -> RuntimeOperator | None:
        """One of them that computes the same; None if there is none, and the operator is now one of them."""
        if self._first is None:
            self._first = op
            return None
        if not self._others:
            self._others[_digest(self._first)] = [self._first]
        same = self._others.setdefault(_digest(op), [])
        found = next((other for other in same if _is_equal(op, other)), None)
        if found is None:
            same.append(op)
        return found


def _digest(op: RuntimeOperator) -> object:
    """Of all data and of what the file says of the operands: comparing each with each would take too long."""
    data = [blake2b(as_bytes(op.attributes[name].data).data).digest() for name in sorted(op.attributes)]
    asks = op.layer is not None and op.layer.signature.annotations_field is not None
    said = repr([operand.annotation for operand in (*op.inputs, *op.outputs)]) if asks else ""
    return said, tuple(data)


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
    return op.layer.signature.annotations_field is None or op.definition == other.definition
