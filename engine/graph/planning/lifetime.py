"""How long values live in a given order, and how many bytes are alive at once.

A value lives from the operator that makes it to its last consumer. A value that leaves the graph lives to the end, and
what a tuple, list or dict holds lives as long as the container. Every tensor counts with its own bytes, be it a view
or not; containers, the graph's inputs and its weights count nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.graph.operand import RuntimeOperand
from engine.graph.operator import RuntimeOperator
from engine.layers.creation.container import Arrangement, Constant
from engine.stopping import wanted_quick
from engine.tensor import TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetime:
    """When a value is made and when it is last used, as indices into the order; and its bytes.

    Args:
        bytes: its own; none for a value written over another one's memory.
        is_overwritten: whether its last user writes over it.
    """

    operand: RuntimeOperand
    start: int
    end: int
    bytes: int
    is_overwritten: bool


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
    for op in wanted_quick(
        reversed(order)
    ):  # users come before makers, so that containers know their end before their items ask
        for operand in op.outputs:
            ends[operand.name] = max(
                (_last_use(user, place, ends) for user in operand.consumers), default=place[op.name]
            )
    in_place = {op.name for op in order if overwrites(op, order, ends)}
    return [
        Lifetime(
            operand=operand,
            start=index,
            end=ends[operand.name],
            bytes=bytes_of(operand),
            is_overwritten=order[ends[operand.name]].name in in_place
            and order[ends[operand.name]].inputs[0] is operand,
        )
        for index, op in enumerate(order)
        for operand in op.outputs
    ]


def overwrites(op: RuntimeOperator, order: Sequence[RuntimeOperator], ends: Mapping[str, int]) -> bool:
    """Whether an operator may write its result over its first input.

    The input must die here, belong to the run alone, and no value still alive may be a view of it: its producer and all
    its other consumers return memory of their own.
    """
    if op.layer is None or not op.layer.can_overwrite or len(op.outputs) != 1:
        return False
    operand = op.inputs[0]
    others = [operand.producer, *(user for user in operand.consumers if user is not op)]
    is_alone = all(each is not None and each.definition is not None and each.definition.makes_new for each in others)
    dies_here = order[ends[operand.name]] is op and op.inputs.count(operand) == 1
    return is_alone and dies_here and operand.spec is not None and operand.spec == op.outputs[0].spec


def _last_use(user: RuntimeOperator, place: Mapping[str, int], ends: Mapping[str, int]) -> int:
    if user.layer is None:  # an output of the graph
        return len(place) - 1
    if isinstance(user.definition, Arrangement):
        return max(ends[operand.name] for operand in user.outputs)
    return place[user.name]


def peak_bytes(order: Sequence[RuntimeOperator]) -> int:
    """The largest number of bytes alive at once, operands and results of the running operator included."""
    change = [0] * (len(order) + 1)
    for each in lifetimes(order):
        change[each.start] += each.bytes
        change[each.end + (not each.is_overwritten)] -= each.bytes
    peak = alive = 0
    for step in change:
        alive += step
        peak = max(peak, alive)
    return peak
