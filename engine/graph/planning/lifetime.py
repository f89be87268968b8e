"""How long values live in a given order, and how many bytes are alive at once.

A value lives from the operator that makes it to its last consumer. A value that leaves the graph lives to the end, and
what a tuple, list or dict holds lives as long as the container. Every tensor counts with its own bytes, be it a view
or not; containers, the graph's inputs and its weights count nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from engine.graph.operand import RuntimeOperand
from engine.graph.operator import RuntimeOperator
from engine.layers.creation.container import Arrangement, Constant
from engine.stopping import wanted_quick
from engine.tensor import TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetime:
    """When a value is made and when it is last used, as indices into the order; and its bytes.

    Args:
        bytes: its own.
    """

    operand: RuntimeOperand
    start: int
    end: int
    bytes: int


def counts(operand: RuntimeOperand) -> bool:
    """Whether a value's bytes count: not those of the graph's inputs (the caller's) or weights (the file's)."""
    layer = operand.producer.layer if operand.producer is not None else None
    return layer is not None and not isinstance(layer.layer, Constant)


def bytes_of(operand: RuntimeOperand) -> int:
    """Bytes of a tensor that counts; nothing where only a run can tell its size, and for containers."""
    if not counts(operand) or not isinstance(operand.value, TensorSpec):
        return 0
    return (operand.value.size or 0) * operand.value.dtype.itemsize


def lifetimes(order: Sequence[RuntimeOperator]) -> list[Lifetime]:
    """The lifetime of every value in this order, in the order they are made."""
    place = {op.name: index for index, op in enumerate(order)}
    ends: dict[str, int] = {}
    # Users come before makers, so that containers know their end before their items ask.
    for op in wanted_quick(reversed(order)):
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
    """The largest number of bytes alive at once, operands and results of the running operator included."""
    return max(alive_bytes((each, each.bytes) for each in lifetimes(order)), default=0)


def alive_bytes(sizes: Iterable[tuple[Lifetime, int]]) -> Iterator[int]:
    """How many bytes are alive at every step up to the last that any value lives in.

    Args:
        sizes: lifetimes, and the bytes each counts for.
    """
    change: Counter[int] = Counter()
    for each, size in sizes:
        change[each.start] += size
        change[each.end + 1] -= size
    return accumulate(change[step] for step in range(max(change, default=0)))
