"""Lists of what a run computes, as indices are given: kernels read the items, and the list itself needs no step."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from engine.compiler.lowering.steps import ReferenceStep, Step
from engine.expression import Input, List, Literal
from engine.layers.creation.container import Expression, ListConstruct
from engine.layers.definition.layer import Layer


def unread_lists(steps: Sequence[Step], returned: Collection[str]) -> set[str]:
    """Names of operators that make a list which no reference layer reads and the graph does not return."""
    by_name = [step.operator for step in steps if isinstance(step, ReferenceStep)]
    read, unread = set(returned), set[str]()
    for op in reversed(by_name):
        if _makes_list(op.definition) and not any(each.name in read for each in op.outputs):
            unread.add(op.name)
        else:
            read.update(each.name for each in op.inputs)
    return unread


def _makes_list(layer: Layer | None) -> bool:
    """Whether all an operator does is to put its operands side by side."""
    if isinstance(layer, Expression):
        return isinstance(layer.tree, List) and all(isinstance(each, Input | Literal) for each in layer.tree.items)
    return isinstance(layer, ListConstruct)
