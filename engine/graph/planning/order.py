"""Execution orders: every operator after the makers of its operands.

Any of them gives the same results; they differ in how long values stay alive.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

from engine.errors import GraphError, ParameterError
from engine.graph.operator import RuntimeOperator
from engine.graph.planning.lifetime import bytes_of, peak_bytes
from engine.stopping import check_wanted

OrderName = Literal["kahn", "depth_first", "least_memory"]
Order = list[RuntimeOperator]


def kahn(operators: Sequence[RuntimeOperator]) -> Order:
    """Breadth-first (Kahn 1962): operators run in the order in which their last operand is made.

    Raises:
        GraphError: when operators feed each other in a cycle; names them.
    """
    waiting = _waiting(operators)
    ready = deque(op for op in operators if not op.inputs)
    order: Order = []
    while ready:
        op = ready.popleft()
        order.append(op)
        ready.extend(_made_ready(op, waiting))
    return _complete(order, operators)


def depth_first(operators: Sequence[RuntimeOperator]) -> Order:
    """Depth-first: a branch is followed to its end, so that its values die young.

    Raises:
        GraphError: when operators feed each other in a cycle; names them.
    """
    waiting = _waiting(operators)
    ready = [op for op in reversed(operators) if not op.inputs]
    order: Order = []
    while ready:
        op = ready.pop()
        order.append(op)
        ready.extend(reversed(_made_ready(op, waiting)))
    return _complete(order, operators)


def least_memory(operators: Sequence[RuntimeOperator]) -> Order:
    """The order with the lowest peak of live bytes among three: the two above and a greedy one.

    The greedy order always runs the operator that leaves the fewest bytes alive; finding the true minimum is
    NP-hard. Sizes of values that only a run can tell count as nothing.

    Raises:
        GraphError: when operators feed each other in a cycle; names them.
    """
    return min((kahn(operators), depth_first(operators), _greedy(operators)), key=peak_bytes)


def _greedy(operators: Sequence[RuntimeOperator]) -> Order:
    waiting = _waiting(operators)
    uses = {operand.name: len(operand.consumers) for op in operators for operand in op.outputs}
    ready = [op for op in operators if not op.inputs]
    order: Order = []
    while ready:
        check_wanted()
        op = min(ready, key=lambda candidate: _growth(candidate, uses))
        ready.remove(op)
        order.append(op)
        for operand in op.inputs:
            uses[operand.name] -= 1
        ready.extend(_made_ready(op, waiting))
    return _complete(order, operators)


def _growth(op: RuntimeOperator, uses: Mapping[str, int]) -> int:
    """How many more bytes are alive after the operator than before it."""
    made = sum(bytes_of(operand) for operand in op.outputs)
    freed = {o.name: bytes_of(o) for o in op.inputs if uses[o.name] == op.inputs.count(o)}
    return made - sum(freed.values())


def _waiting(operators: Sequence[RuntimeOperator]) -> dict[str, int]:
    return {op.name: len(op.inputs) for op in operators}


def _made_ready(op: RuntimeOperator, waiting: dict[str, int]) -> Order:
    ready = []
    for successor in op.successors:
        waiting[successor.name] -= 1
        if waiting[successor.name] == 0:
            ready.append(successor)
    return ready


def _complete(order: Order, operators: Sequence[RuntimeOperator]) -> Order:
    if len(order) < len(operators):
        raise GraphError("operators form a cycle", found=" -> ".join(_find_cycle(operators, order)))
    return order


def _find_cycle(operators: Sequence[RuntimeOperator], ordered: Sequence[RuntimeOperator]) -> list[str]:
    done = {op.name for op in ordered}
    op = next(op for op in operators if op.name not in done)
    path: dict[str, None] = {}
    while op.name not in path:
        path[op.name] = None
        # Every operator left over waits for another one left over.
        op = next(o.producer for o in op.inputs if o.producer is not None and o.producer.name not in done)
    names = list(path)
    cycle = names[names.index(op.name) :]
    return [cycle[0], *reversed(cycle)]


ORDERS: Final[Mapping[str, Callable[[Sequence[RuntimeOperator]], Order]]] = {
    "kahn": kahn,
    "depth_first": depth_first,
    "least_memory": least_memory,
}


def arrange(operators: Sequence[RuntimeOperator], order: str) -> Order:
    """The operators in an order chosen by name.

    Raises:
        ParameterError: no such order.
        GraphError: when operators feed each other in a cycle; names them.
    """
    if order not in ORDERS:
        raise ParameterError("unknown order", found=repr(order), expected=", ".join(ORDERS))
    return ORDERS[order](operators)
