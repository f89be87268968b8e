"""Execution orders, every operator after the makers of its operands, and the memory that is alive in an order.

All orders give the same results; they differ in how long values stay alive. A value lives from the operator that
makes it to its last consumer. A value that leaves the graph lives to the end, and the items of a tuple, list or dict
live as long as the container. Every tensor counts with its own bytes, even a view; containers, the graph's inputs
and its weights count nothing.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Literal, TypeAlias

from engine.cancellation import cancellable_quick, check_cancelled
from engine.errors import GraphError, ParameterError
from engine.graph.operand import RuntimeOperand
from engine.graph.operator import RuntimeOperator
from engine.layers.creation.container import Arrangement, Constant
from engine.tensor import TensorSpec

OrderName = Literal["kahn", "depth_first", "least_memory"]
Order = list[RuntimeOperator]
Ready: TypeAlias = deque[RuntimeOperator]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetime:
    """Interval of a value from where it is made to its last use, as indices into the order.

    Args:
        bytes: of the value itself.
    """

    operand: RuntimeOperand
    start: int
    end: int
    bytes: int


def counts(operand: RuntimeOperand) -> bool:
    """Return whether a value's bytes count: not those of the graph's inputs (the caller's) or weights (the file's)."""
    layer = operand.producer.layer if operand.producer is not None else None
    return layer is not None and not isinstance(layer.layer, Constant)


def bytes_of(operand: RuntimeOperand) -> int:
    """Return the bytes of a tensor that counts; 0 where its size is unknown before a run, and for containers."""
    if not counts(operand) or not isinstance(operand.value, TensorSpec):
        return 0
    return (operand.value.size or 0) * operand.value.dtype.itemsize


def lifetimes(order: Sequence[RuntimeOperator]) -> list[Lifetime]:
    """Return the lifetime of every value in this order, in the order they are made."""
    place = {op.name: index for index, op in enumerate(order)}
    ends: dict[str, int] = {}
    # Backwards, so that the end of a container is known before its items need it.
    for op in cancellable_quick(reversed(order)):
        for operand in op.outputs:
            ends[operand.name] = max(
                (_last_use(user, place, ends) for user in operand.consumers), default=place[op.name]
            )
    return [
        Lifetime(operand=operand, start=index, end=ends[operand.name], bytes=bytes_of(operand))
        for index, op in enumerate(order)
        for operand in op.outputs
    ]


def _last_use(user: RuntimeOperator, place: Mapping[str, int], ends: Mapping[str, int]) -> int:
    if user.layer is None:  # an output of the graph
        return len(place) - 1
    if isinstance(user.definition, Arrangement):
        return max(ends[operand.name] for operand in user.outputs)
    return place[user.name]


def peak_bytes(order: Sequence[RuntimeOperator]) -> int:
    """Return the largest number of bytes alive at once, operands and results of the running operator included."""
    return max(alive_bytes((each, each.bytes) for each in lifetimes(order)), default=0)


def alive_bytes(sizes: Iterable[tuple[Lifetime, int]]) -> Iterator[int]:
    """Return the number of bytes alive at every step up to the last use of a value.

    Args:
        sizes: lifetimes, and the bytes each counts for.
    """
    change: Counter[int] = Counter()
    for each, size in sizes:
        change[each.start] += size
        change[each.end + 1] -= size
    return accumulate(change[step] for step in range(max(change, default=0)))


def kahn(operators: Sequence[RuntimeOperator]) -> Order:
    """Order breadth-first (Kahn 1962): operators run in the order in which their last operand is made.

    Raises:
        GraphError: when operators feed each other in a cycle; names them.
    """
    return [op for op, _ in steps(operators)]


def depth_first(operators: Sequence[RuntimeOperator]) -> Order:
    """Order depth-first: each branch is followed to its end, so that its values have short lifetimes.

    Raises:
        GraphError: when operators feed each other in a cycle; names them.
    """
    return [op for op, _ in steps(operators, add=lambda ready, new: ready.extendleft(reversed(new)))]


def least_memory(operators: Sequence[RuntimeOperator]) -> Order:
    """Return the order with the lowest peak of live bytes among three: kahn, depth_first and a greedy one.

    The greedy order always runs the operator that leaves the fewest bytes alive; finding the true minimum is
    NP-hard. Values of unknown size count as zero.

    Raises:
        GraphError: when operators feed each other in a cycle; names them.
    """
    return min((kahn(operators), depth_first(operators), _greedy(operators)), key=peak_bytes)


def _greedy(operators: Sequence[RuntimeOperator]) -> Order:
    uses = {operand.name: len(operand.consumers) for op in operators for operand in op.outputs}

    def take(ready: Ready) -> RuntimeOperator:
        check_cancelled()
        op = min(ready, key=lambda candidate: _growth(candidate, uses))
        ready.remove(op)
        for operand in op.inputs:
            uses[operand.name] -= 1
        return op

    return [op for op, _ in steps(operators, take)]


def steps(
    operators: Sequence[RuntimeOperator],
    take: Callable[[Ready], RuntimeOperator] = deque.popleft,
    add: Callable[[Ready, Order], None] = deque.extend,
) -> Iterator[tuple[RuntimeOperator, Ready]]:
    """Yield every operator after the makers of its operands, with the operators that are ready after it.

    Args:
        take: removes the next operator from the ready ones; by default the first.
        add: adds new ready ones; by default at the end.

    Raises:
        GraphError: when operators feed each other in a cycle; names them.
    """
    waiting = {op.name: len(op.inputs) for op in operators}
    ready: Ready = deque()
    add(ready, [op for op in operators if not op.inputs])
    done: set[str] = set()
    while ready:
        op = take(ready)
        done.add(op.name)
        add(ready, _made_ready(op, waiting))
        yield op, ready
    if len(done) < len(operators):
        raise GraphError("operators form a cycle", found=" -> ".join(_find_cycle(operators, done)))


def _growth(op: RuntimeOperator, uses: Mapping[str, int]) -> int:
    """Return the increase of live bytes caused by the operator."""
    made = sum(bytes_of(operand) for operand in op.outputs)
    freed = {o.name: bytes_of(o) for o in op.inputs if uses[o.name] == op.inputs.count(o)}
    return made - sum(freed.values())


def _made_ready(op: RuntimeOperator, waiting: dict[str, int]) -> Order:
    ready = []
    for successor in op.successors:
        waiting[successor.name] -= 1
        if waiting[successor.name] == 0:
            ready.append(successor)
    return ready


def _find_cycle(operators: Sequence[RuntimeOperator], done: Collection[str]) -> list[str]:
    op = next(op for op in operators if op.name not in done)
    path: dict[str, None] = {}
    while op.name not in path:
        path[op.name] = None
        # Every remaining operator waits for another remaining one.
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
    """Return the operators in an order chosen by name.

    Raises:
        ParameterError: unknown order.
        GraphError: when operators feed each other in a cycle; names them.
    """
    if order not in ORDERS:
        raise ParameterError("unknown order", found=repr(order), expected=", ".join(ORDERS))
    return ORDERS[order](operators)
