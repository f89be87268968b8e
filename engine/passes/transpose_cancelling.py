"""Chains of operators that only move elements, or only change the shape."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace as with_fields

from engine.cancellation import cancellable_quick
from engine.graph import RuntimeGraph, RuntimeOperand, RuntimeOperator
from engine.passes.support.facts import Facts, is_static
from engine.passes.support.permutations import PERMUTATIONS, VIEWS, is_certain, is_trivial, order_of
from engine.passes.support.rewriting import Rewriter
from engine.pnnx import Graph, Parameter


def transpose_cancelling(graph: RuntimeGraph) -> Graph:
    """Merge consecutive permutations into one, consecutive views into one reshape, and remove those that cancel out."""
    rewriter, facts = Rewriter(graph), Facts(graph)
    for op in cancellable_quick(reversed(graph.operators)):  # from the last of a chain all of it is visible
        if rewriter.is_touched(op):
            continue
        if _is_view(op):
            _merge_views(op, rewriter, facts)
        elif _is_permutation(op):
            _merge_permutations(op, rewriter, facts)
    return rewriter.result()


def _is_view(op: RuntimeOperator | None) -> bool:
    return op is not None and isinstance(op.definition, VIEWS)


def _is_permutation(op: RuntimeOperator | None) -> bool:
    return op is not None and type(op.definition) in PERMUTATIONS and is_static(op)


def _merge_views(op: RuntimeOperator, rewriter: Rewriter, facts: Facts) -> None:
    made = facts.spec(op.outputs[0])
    if made is None or not is_certain(made.shape):
        return
    chain = [each for each in _makers(op, rewriter) if _is_view(each)]
    for maker in reversed(chain):
        if facts.spec(maker.inputs[0]) == made and rewriter.stand_in(op.outputs[0], maker.inputs[0]):
            rewriter.drop(op)
            return
    alone = _unshared(op, chain, rewriter)
    if alone:
        sizes = tuple(-1 if dim is None else dim for dim in made.shape)
        _replace_chain(op, alone, ("Tensor.reshape", {"shape": sizes}), rewriter)


def _merge_permutations(op: RuntimeOperator, rewriter: Rewriter, facts: Facts) -> None:
    given = facts.spec(op.inputs[0])
    if given is None:
        return
    chain = [each for each in _makers(op, rewriter) if _is_permutation(each)]
    alone = _unshared(op, chain, rewriter)
    order = _order(op, given.rank)
    for count, maker in enumerate(chain, 1):
        before = _order(maker, given.rank)
        order = tuple(before[axis] for axis in order)
        source = facts.spec(maker.inputs[0])
        if source is not None and is_trivial(order, source.shape) and rewriter.stand_in(op.outputs[0], maker.inputs[0]):
            rewriter.drop(op)
            return
        if count == len(alone):
            merged = order
    if alone:
        _replace_chain(op, alone, ("Tensor.permute", {"dims": merged}), rewriter)


def _order(op: RuntimeOperator, rank: int) -> tuple[int, ...]:
    return order_of(op.definition, rank) if op.definition is not None else ()


def _makers(op: RuntimeOperator, rewriter: Rewriter) -> Iterator[RuntimeOperator]:
    """Yield the views, or the permutations, directly before an operator, the nearest first."""
    is_same_kind = _is_view if _is_view(op) else _is_permutation
    maker = op.inputs[0].producer
    while maker is not None and is_same_kind(maker) and not rewriter.is_touched(maker):
        yield maker
        maker = maker.inputs[0].producer


def _unshared(op: RuntimeOperator, chain: list[RuntimeOperator], rewriter: Rewriter) -> list[RuntimeOperator]:
    """Return the part of a chain that only the operator at its end needs."""
    alone: list[RuntimeOperator] = []
    user = op
    for maker in chain:
        if rewriter.only_consumer(maker.outputs[0]) is not user:
            break
        alone.append(maker)
        user = maker
    return alone


def _replace_chain(
    op: RuntimeOperator,
    chain: list[RuntimeOperator],
    by: tuple[str, dict[str, Parameter]],
    rewriter: Rewriter,
) -> None:
    source: RuntimeOperand = chain[-1].inputs[0]
    type, params = by
    new = with_fields(op.source, type=type, inputs=(source.name,), labels=(), params=params, attributes={})
    rewriter.replace(op, new)
    for each in chain:
        rewriter.drop(each)
