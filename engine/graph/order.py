"""Execution orders: every operator after the makers of its operands."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from engine.errors import GraphError
from engine.graph.operator import RuntimeOperator


def kahn(operators: Sequence[RuntimeOperator]) -> list[RuntimeOperator]:
    """Breadth-first order (Kahn 1962): operators become ready as their last operand is made.

    Raises:
        GraphError: when operators feed each other in a cycle; names them.
    """
    waiting = {id(op): len(op.inputs) for op in operators}
    ready = deque(op for op in operators if not op.inputs)
    order: list[RuntimeOperator] = []
    while ready:
        op = ready.popleft()
        order.append(op)
        for successor in op.successors:
            waiting[id(successor)] -= 1
            if waiting[id(successor)] == 0:
                ready.append(successor)
    if len(order) < len(operators):
        raise GraphError("operators form a cycle", found=" -> ".join(_find_cycle(operators, order)))
    return order


def _find_cycle(operators: Sequence[RuntimeOperator], ordered: Sequence[RuntimeOperator]) -> list[str]:
    done = {id(op) for op in ordered}
    op = next(op for op in operators if id(op) not in done)
    path: list[RuntimeOperator] = []
    while op not in path:
        path.append(op)
        # Every operator left over waits for another one left over.
        op = next(o.producer for o in op.inputs if o.producer is not None and id(o.producer) not in done)
    cycle = path[path.index(op) :]
    return [each.name for each in reversed(cycle)] + [cycle[-1].name]
