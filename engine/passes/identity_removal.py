"""Operators that return an operand as it is."""

from __future__ import annotations

from engine.graph import RuntimeGraph, RuntimeOperator
from engine.layers.container import ListConstruct, TupleConstruct, Unpack
from engine.layers.join import Stack
from engine.passes.facts import Facts, is_static
from engine.passes.identities import unchanged
from engine.passes.rewriting import Rewriter
from engine.pnnx import Graph, Operator


def identity_removal(graph: RuntimeGraph) -> Graph:
    """Take out operators that change neither value nor dtype nor shape, and tuples that are unpacked again.

    A stack of one tensor becomes an unsqueeze.
    """
    rewriter, facts = Rewriter(graph), Facts(graph)
    for op in graph.operators:
        instead = unchanged(op, facts)
        if instead is not None and rewriter.stand_in(op.outputs[0], instead):
            rewriter.drop(op)
        elif op.layer is not None and isinstance(op.layer.layer, Unpack):
            _unpack(op, rewriter)
        elif op.layer is not None and isinstance(op.layer.layer, Stack) and len(op.inputs) == 1:
            _unstack(op, op.layer.layer, rewriter, facts)
    return rewriter.result()


def _unpack(op: RuntimeOperator, rewriter: Rewriter) -> None:
    maker = op.inputs[0].producer
    if maker is None or maker.layer is None or not isinstance(maker.layer.layer, (TupleConstruct, ListConstruct)):
        return
    if len(maker.inputs) == len(op.outputs):
        replaced = [rewriter.stand_in(out, item) for out, item in zip(op.outputs, maker.inputs, strict=True)]
        if all(replaced):
            rewriter.drop(op)


def _unstack(op: RuntimeOperator, layer: Stack, rewriter: Rewriter, facts: Facts) -> None:
    if facts.spec(op.inputs[0]) is not None and is_static(op):
        new = Operator("torch.unsqueeze", op.name, op.source.inputs, op.source.outputs, {"dim": layer.dim})
        rewriter.replace(op, new)
