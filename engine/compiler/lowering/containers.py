"""Tuples and lists: those that need no step, and the operands a graph returns once they are flattened."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from engine.compiler.lowering.steps import ReferenceStep, Step
from engine.expression import Input, List, Literal
from engine.graph.operator import RuntimeOperator
from engine.layers.creation.container import Expression, ListConstruct, TupleConstruct
from engine.layers.definition.layer import Layer

_CONTAINERS = (TupleConstruct, ListConstruct)
# Limits for items of nested tuples, which only malicious files exceed.
_MAX_ITEMS = 10_000
_MAX_DEPTH = 8


def unread_lists(steps: Sequence[Step], returned: Collection[str]) -> set[str]:
    """Return the names of operators that make a list which no reference layer reads and the graph does not return."""
    by_name = [step.operator for step in steps if isinstance(step, ReferenceStep)]
    read, unread = set(returned), set[str]()
    for op in reversed(by_name):
        if _makes_list(op.definition) and not any(each.name in read for each in op.outputs):
            unread.add(op.name)
        else:
            read.update(each.name for each in op.inputs)
    return unread


def _makes_list(layer: Layer | None) -> bool:
    """Return whether an operator only makes a list of its operands."""
    if isinstance(layer, Expression):
        return isinstance(layer.tree, List) and all(isinstance(each, Input | Literal) for each in layer.tree.items)
    return isinstance(layer, ListConstruct)


def flattened_outputs(operators: Sequence[RuntimeOperator], outputs: Sequence[str]) -> list[str]:
    """Return the names of the operands a graph returns, with tuples and lists flattened."""
    makers = {operand.name: op for op in operators for operand in op.outputs}
    found: list[str] = []
    pending = list(reversed(outputs))
    while pending:
        if len(found) + len(pending) > _MAX_ITEMS:
            return list(outputs)
        name = pending.pop()
        op = makers.get(name)
        if op is not None and op.layer is not None and isinstance(op.definition, _CONTAINERS):
            pending.extend(reversed([each.name for each in op.inputs]))
        else:
            found.append(name)
    return found


def is_only_returned(op: RuntimeOperator, outputs: Collection[str], depth: int = 0) -> bool:
    """Return whether an operator only packs outputs of the graph, which are flattened."""
    is_inside = not isinstance(op.definition, _CONTAINERS) or any(each.name in outputs for each in op.outputs)
    if is_inside or depth > _MAX_DEPTH:
        return False
    users = (user for each in op.outputs for user in each.consumers)
    return all(user.type == "pnnx.Output" or is_only_returned(user, outputs, depth + 1) for user in users)
