"""Fusion of consecutive element-wise operators into one expression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from engine.cancellation import cancellable_quick
from engine.expression import Call, Input, List, Node, postorder
from engine.graph import RuntimeGraph, RuntimeOperand, RuntimeOperator
from engine.layers.creation.container import Expression
from engine.passes.support.algebra import reading, renumbered, replaced, rounds_down, simplified, uses
from engine.passes.support.expressions import tree_of
from engine.passes.support.facts import Facts, only_consumer
from engine.passes.support.rewriting import Rewriter
from engine.pnnx import Graph

LONGEST: Final = 64
"""Calls of an expression beyond which nothing more is merged into it."""

WIDEST: Final = 12
"""Most operands of an expression."""

CHEAP: Final = frozenset({"add", "sub", "mul", "neg", "abs", "square", "max", "min", "maximum", "minimum"})
"""Functions that may be computed twice if a result is used twice."""

REPEATED: Final = 3
"""Most such functions in one expression."""


def expression_fusion(graph: RuntimeGraph) -> Graph:
    """Merge element-wise operators into their only user if both have tensors of one shape and dtype.

    The expression gets the name of the last of them. Every expression is simplified; see support/algebra.py.
    """
    rewriter, facts = Rewriter(graph), Facts(graph)
    maps: dict[str, _Map] = {}
    for op in cancellable_quick(graph.operators):
        tree = tree_of(op, facts)
        if tree is not None:
            maps[op.name] = _grown(_Map.of(op, tree), maps, facts)
    absorbed = {name for each in maps.values() for name in each.absorbed}
    for name, each in maps.items():
        if name in absorbed:
            rewriter.drop(each.op)
        else:
            _emit(each, rewriter, facts)
    return rewriter.result()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Map:
    """Function of the elements of some operands.

    Args:
        op: its last operator.
        tree: reads ``operands`` by their index, each of them once in the list.
        absorbed: names of the operators merged into the last one.
    """

    op: RuntimeOperator
    tree: Node
    operands: tuple[RuntimeOperand, ...]
    absorbed: tuple[str, ...] = ()

    @classmethod
    def of(cls, op: RuntimeOperator, tree: Node) -> _Map:
        """Return the map of a single operator."""
        operands = tuple({operand.name: operand for operand in op.inputs}.values())
        places = {operand.name: place for place, operand in enumerate(operands)}
        numbers = {index: places[operand.name] for index, operand in enumerate(op.inputs)}
        return cls(op=op, tree=renumbered(tree, numbers), operands=operands)

    @property
    def calls(self) -> int:
        """Number of function calls."""
        return sum(isinstance(node, Call) for node in postorder(self.tree))

    def absorbing(self, other: _Map) -> _Map:
        """Return this map merged with the map that makes one of its operands."""
        made = other.op.outputs[0]
        operands = list({o.name: o for o in (*self.operands, *other.operands) if o is not made}.values())

        def moved(map: _Map) -> dict[Node, Node]:
            return {Input(k): Input(operands.index(o)) for k, o in enumerate(map.operands) if o is not made}

        inner = replaced(other.tree, moved(other))
        tree = replaced(self.tree, {**moved(self), Input(self.operands.index(made)): inner})
        absorbed = (*self.absorbed, *other.absorbed, other.op.name)
        return _Map(op=self.op, tree=tree, operands=tuple(operands), absorbed=absorbed)


def _grown(map: _Map, maps: dict[str, _Map], facts: Facts) -> _Map:
    """Return a map merged with all makers of its operands that allow it."""
    if len(map.operands) > WIDEST or map.calls > LONGEST:
        return map
    for operand in map.operands:
        maker = maps.get(operand.producer.name) if operand.producer is not None else None
        if maker is not None and _can_merge(maker, map, facts):
            map = map.absorbing(maker)
    return map


def _can_merge(maker: _Map, user: _Map, facts: Facts) -> bool:
    made = maker.op.outputs[0]
    spec = facts.spec(made)
    if only_consumer(made) is not user.op or spec is None or spec != facts.spec(user.op.outputs[0]):
        return False
    if isinstance(maker.tree, List) or isinstance(user.tree, List) or rounds_down(maker.tree, made.annotation):
        return False
    is_once = sum(index == user.operands.index(made) for index in uses(user.tree)) <= 1
    fits = maker.calls + user.calls <= LONGEST and len({*maker.operands, *user.operands}) - 1 <= WIDEST
    return fits and (is_once or _is_cheap(maker))


def _is_cheap(map: _Map) -> bool:
    calls = [node.function for node in postorder(map.tree) if isinstance(node, Call)]
    return len(calls) <= REPEATED and CHEAP.issuperset(calls)


def _emit(map: _Map, rewriter: Rewriter, facts: Facts) -> None:
    op, annotation = map.op, map.op.outputs[0].annotation
    tree = simplified(map.tree, [facts.known(operand) for operand in map.operands], annotation)
    is_expression = isinstance(op.definition, Expression)
    if not map.absorbed and (not is_expression or tree == map.tree):
        return
    rewriter.replace(op, reading(op.source, tree, [operand.name for operand in map.operands]))
