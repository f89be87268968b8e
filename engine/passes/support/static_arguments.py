"""Arguments that a graph computes although they are known: written into the operator that takes them."""

from __future__ import annotations

from dataclasses import replace as with_fields

import numpy as np

from engine.expression import Input, Literal, Node, postorder
from engine.graph import RuntimeOperator
from engine.layers import Signature
from engine.layers.creation.container import Expression
from engine.passes.support.algebra import explicit, simplified
from engine.passes.support.facts import Facts, is_pure
from engine.passes.support.trees import reading, rebuilt
from engine.pnnx import Operator, Parameter
from engine.tensor import UNKNOWN, known_value


def with_known_arguments(op: RuntimeOperator, facts: Facts) -> Operator:
    """The operator with the operands that are known Python values as parameters; itself where there are none."""
    if op.layer is None or not is_pure(op):
        return op.source
    if isinstance(op.definition, Expression):
        return _shorter(op, op.definition, facts)
    found = {index: entry for index in range(len(op.inputs)) if (entry := _parameter(op, index, facts)) is not None}
    if not found:
        return op.source
    kept = [index for index in range(len(op.inputs)) if index not in found]
    return with_fields(
        op.source,
        inputs=tuple(op.source.inputs[index] for index in kept),
        labels=tuple(op.source.labels[index] for index in kept),
        params={**op.source.params, **dict(found.values())},
    )


def _parameter(op: RuntimeOperator, index: int, facts: Facts) -> tuple[str, Parameter] | None:
    """An input as a parameter, name and value; None if it is not known or has to stay an operand."""
    value = _without_tensors(facts.known(op.inputs[index]))
    if op.layer is None or value is UNKNOWN or (index == 0 and _needs_first(op.layer.signature)):
        return None
    field = next((name for name, at in op.layer.dynamic.items() if at == index), None)
    if field is not None and _is_parameter(value):
        return field, tuple(value) if isinstance(value, list) else value  # type: ignore[return-value]
    if op.layer.signature.is_variadic:
        return None  # its inputs are told apart by their place
    sources = zip(op.layer.signature.operands, op.layer.positional, strict=True)
    operand = next((name for name, source in sources if source.index == index), None)
    is_number = isinstance(value, (int, float))
    return (operand, value) if operand is not None and is_number else None  # type: ignore[return-value]


def _without_tensors(value: object) -> object:
    """A known list whose tensors of one element are numbers, as layers take them."""
    if not isinstance(value, list):
        return value
    items = [known_value(item) for item in value]
    return [item.item() if isinstance(item, np.ndarray) and item.size == 1 else item for item in items]


def _needs_first(signature: Signature) -> bool:
    """Whether the first input has a meaning of its own: the tensor of a method, or one the file is asked about."""
    return signature.type.startswith("Tensor.") or signature.annotations_field is not None


def _is_parameter(value: object) -> bool:
    """Whether the file can hold a value as a parameter, and read it as the same."""
    if isinstance(value, (list, tuple)):
        return bool(value) and all(isinstance(item, (bool, int, float)) for item in value)
    return value is None or isinstance(value, (bool, int, float))


def _shorter(op: RuntimeOperator, layer: Expression, facts: Facts) -> Operator:
    """An expression with what is known in it, sizes among them, as literals; operands it does not read are left out."""
    known = [facts.known(operand) for operand in op.inputs]
    tree = explicit(layer.tree, known, op.outputs[0].annotation)
    tree = simplified(_with_literals(tree, known), known, op.outputs[0].annotation, rules={})
    return op.source if tree == layer.tree else reading(op.source, tree, op.source.inputs)


def _with_literals(root: Node, known: list[object]) -> Node:
    done: dict[Node, Node] = {}
    for node in postorder(root):
        value = known[node.index] if isinstance(node, Input) else None
        is_number = isinstance(value, (bool, int, float))
        done[node] = Literal(value) if is_number else rebuilt(node, [done[child] for child in node.children])  # type: ignore[arg-type]
    return done[root]
