"""Common subexpressions: operators that compute the same value twice."""

from __future__ import annotations

from hashlib import blake2b
from typing import TypeAlias

from engine.cancellation import cancellable_quick
from engine.graph import RuntimeGraph, RuntimeOperator
from engine.passes.support.facts import is_pure
from engine.passes.support.rewriting import Rewriter
from engine.pnnx import Graph
from engine.pnnx.graph import as_bytes

Key: TypeAlias = tuple[object, ...]


def common_subexpressions(graph: RuntimeGraph) -> Graph:
    """Redirect users of an operator to an earlier one of equal type, operands, parameters and data.

    Random operators are never merged.
    """
    rewriter = Rewriter(graph)
    seen: dict[Key, _Candidates] = {}
    for op in cancellable_quick(graph.operators):
        if not is_pure(op):
            continue
        earlier = seen.setdefault(_key(op, rewriter), _Candidates()).earlier(op)
        if earlier is None:
            continue
        replaced = [rewriter.stand_in(*pair) for pair in zip(op.outputs, earlier.outputs, strict=True)]
        if all(replaced):
            rewriter.drop(op)
    return rewriter.result()


class _Candidates:
    """Operators with equal keys, which may differ in data or layers; data is compared only if there are several."""

    def __init__(self) -> None:
        self._first: RuntimeOperator | None = None
        self._others: dict[object, list[RuntimeOperator]] = {}

    def earlier(self, op: RuntimeOperator) -> RuntimeOperator | None:
        """Return an earlier operator that computes the same; if there is none, remember this one and return None."""
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
    """Return a digest of all data and of the operands' annotations: comparing all pairs would take too long."""
    data = [blake2b(as_bytes(op.attributes[name].data).data).digest() for name in sorted(op.attributes)]
    asks = op.layer is not None and op.layer.signature.annotations_field is not None
    annotations = repr([operand.annotation for operand in (*op.inputs, *op.outputs)]) if asks else ""
    return annotations, tuple(data)


def _key(op: RuntimeOperator, rewriter: Rewriter) -> Key:
    """Return a key that is cheap to compare; 1, 1.0 and True are spelled differently, and so are 0.0 and -0.0."""
    params = sorted((name, repr(value)) for name, value in op.params.items())
    attributes = sorted((name, each.shape, each.code) for name, each in op.attributes.items())
    inputs = tuple(rewriter.resolved(operand.name) for operand in op.inputs)
    return (op.type, inputs, op.source.labels, len(op.outputs), tuple(params), tuple(attributes))


def _is_equal(op: RuntimeOperator, other: RuntimeOperator) -> bool:
    """Return whether the data is equal, and the annotations of the operands if the layers use them."""
    if op.layer is None or other.layer is None or op.attributes != other.attributes:
        return False
    return op.layer.signature.annotations_field is None or op.definition == other.definition
