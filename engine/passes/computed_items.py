"""Tensors that are computed inside a list, as in ``x[indices // 2]``, as operators of their own."""

from __future__ import annotations

from engine.cancellation import cancellable_quick
from engine.errors import EngineError
from engine.expression import Call, Input, List, Node, infer
from engine.graph import RuntimeGraph, RuntimeOperator
from engine.layers.creation.container import Expression
from engine.passes.support.algebra import reading
from engine.passes.support.facts import Facts
from engine.passes.support.rewriting import Rewriter
from engine.pnnx import Graph, Operator
from engine.tensor import TensorSpec


def computed_items(graph: RuntimeGraph) -> Graph:
    """Compute the tensors of a list before the list is made: there are kernels for expressions, but not for lists."""
    rewriter, facts = Rewriter(graph), Facts(graph)
    for op in cancellable_quick(graph.operators):
        definition = op.definition
        if isinstance(definition, Expression) and isinstance(definition.tree, List) and not definition.shapes:
            _take_apart(op, definition.tree, rewriter, facts)
    return rewriter.result()


def _take_apart(op: RuntimeOperator, tree: List, rewriter: Rewriter, facts: Facts) -> None:
    operands = list(op.source.inputs)
    made: list[Operator] = []
    items: list[Node] = []
    for item in tree.items:
        spec = _tensor(item, op, facts)
        if spec is None:
            items.append(item)
            continue
        name, operand = rewriter.fresh(f"{op.name}_item"), rewriter.fresh(f"{op.outputs[0].name}_item")
        rewriter.annotate(operand, spec)
        made.append(reading(Operator("", name, (), (operand,)), item, op.source.inputs))
        items.append(Input(len(operands)))
        operands.append(operand)
    if made:
        rewriter.replace(op, *made, reading(op.source, List(tuple(items)), operands))


def _tensor(item: Node, op: RuntimeOperator, facts: Facts) -> TensorSpec | None:
    """Return the spec of an item that is a computed tensor; None for a number, which stays in the list."""
    if not isinstance(item, Call):
        return None
    try:
        found = infer(item, [facts.known(operand) for operand in op.inputs])
    except EngineError:  # operands that do not fit: the run will report it
        return None
    return found if isinstance(found, TensorSpec) and found.shape else None
