"""Removal of operators: those whose outputs are unused, those that return an operand as it is, and containers."""

from __future__ import annotations

from dataclasses import replace as with_fields
from typing import Final

from engine.cancellation import cancellable_quick
from engine.graph import RuntimeGraph, RuntimeOperator
from engine.layers.creation.container import Unpack
from engine.layers.shape.join import Cat, Stack
from engine.layers.shape.split import Chunk, Split, TensorSplit, Unbind
from engine.passes.support.facts import Facts, is_static, only_consumer, packed
from engine.passes.support.identities import unchanged
from engine.passes.support.rewriting import Rewriter
from engine.pnnx import Graph, Operator

_PIECES: Final = (Chunk, Split, TensorSplit, Unbind)
_JOINS: Final = (Cat, Stack)


def dead_operators(graph: RuntimeGraph) -> Graph:
    """Remove operators that no output of the graph depends on; the graph's inputs stay, used or not."""
    rewriter = Rewriter(graph)
    needed: set[str] = set()
    for op in cancellable_quick(reversed(graph.operators)):
        is_boundary = op.layer is None
        if is_boundary or any(operand.name in needed for operand in op.outputs):
            needed.update(operand.name for operand in op.inputs)
        else:
            rewriter.drop(op)
    return rewriter.result()


def unpacked(op: RuntimeOperator, rewriter: Rewriter) -> bool:
    """Bypass a container between its maker and ``op``; False if there is none, or it has other users.

    Unpacking passes on the packed items; pieces of a tensor come from the operator that splits it; tensors are joined
    one by one, not as a list.
    """
    layer = op.definition
    if isinstance(layer, Unpack):
        return _items(op, rewriter) or _pieces(op, rewriter)
    return isinstance(layer, _JOINS) and _joined(op, rewriter)


def _items(op: RuntimeOperator, rewriter: Rewriter) -> bool:
    items = packed(op.inputs[0])
    if items is None or len(items) != len(op.outputs):
        return False
    replaced = [rewriter.stand_in(out, item) for out, item in zip(op.outputs, items, strict=True)]
    if all(replaced):
        rewriter.drop(op)
    return True


def _pieces(op: RuntimeOperator, rewriter: Rewriter) -> bool:
    maker = op.inputs[0].producer
    if maker is None or not isinstance(maker.definition, _PIECES):
        return False
    is_list = len(maker.outputs) == 1 and maker.outputs[0].annotation is None
    # A single output is the list of pieces; several outputs are the pieces themselves.
    if not is_list or len(op.outputs) < 2 or only_consumer(maker.outputs[0]) is not op or rewriter.is_touched(maker):
        return False
    rewriter.replace(maker, with_fields(maker.source, outputs=op.source.outputs))
    rewriter.drop(op)
    return True


def _joined(op: RuntimeOperator, rewriter: Rewriter) -> bool:
    items = packed(op.inputs[0]) if op.inputs else None
    if not items or op.layer is None or [source.index for source in op.layer.positional] != [0]:
        return False
    inputs = (*(item.name for item in items), *op.source.inputs[1:])
    labels = (*(None for _ in items), *op.source.labels[1:])
    rewriter.replace(op, with_fields(op.source, inputs=inputs, labels=labels))
    return True


def identity_removal(graph: RuntimeGraph) -> Graph:
    """Remove operators that change neither value nor dtype nor shape, and lists that are only unpacked again.

    A stack of one tensor becomes an unsqueeze.
    """
    rewriter, facts = Rewriter(graph), Facts(graph)
    for op in cancellable_quick(graph.operators):
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
