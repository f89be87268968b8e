"""Operators that return an operand as it is."""

from __future__ import annotations

from engine.graph import RuntimeGraph, RuntimeOperator
from engine.layers.shape.join import Stack
from engine.passes.support.containers import unpacked
from engine.passes.support.facts import Facts, is_static
from engine.passes.support.identities import unchanged
from engine.passes.support.rewriting import Rewriter
from engine.pnnx import Graph, Operator
from engine.stopping import wanted_quick


def identity_removal(graph: RuntimeGraph) -> Graph:
    """Take out operators that change neither value nor dtype nor shape, and lists only made to be taken apart.

    A stack of one tensor becomes an unsqueeze.
    """
    rewriter, facts = Rewriter(graph), Facts(graph)
    for op in wanted_quick(graph.operators):
        instead = unchanged(op, facts)
        if instead is not None and rewriter.stand_in(op.outputs[0], instead):
            rewriter.drop(op)
        elif not unpacked(op, rewriter):
            _unstack(op, rewriter, facts)
    return rewriter.result()


def _unstack(op: RuntimeOperator, rewriter: Rewriter, facts: Facts) -> None:
    layer = op.definition
    if isinstance(layer, Stack) and len(op.inputs) == 1 and is_static(op) and facts.spec(op.inputs[0]) is not None:
        new = Operator("torch.unsqueeze", op.name, op.source.inputs, op.source.outputs, {"dim": layer.dim})
        rewriter.replace(op, new)
