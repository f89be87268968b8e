"""The plan of a run: the slots of the value table that each step reads, writes and releases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.graph.operand import RuntimeOperand
from engine.graph.operator import RuntimeOperator
from engine.graph.planning.execution_order import counts, lifetimes, peak_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One operator of a run, its operands replaced by slots of the run's value table.

    Args:
        inputs, outputs: slots read and written.
        released: slots that no later step reads.
        is_needed: whether an output of the graph depends on it; the failure of another step does no harm.
    """

    operator: RuntimeOperator
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    released: tuple[int, ...]
    is_needed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Steps of a run; immutable, shared by every thread that runs the graph.

    Args:
        slots: size of a run's value table.
        inputs, outputs: slots of the graph's own inputs and outputs.
        operands: slot of every operand by name.
        counted: slots whose bytes count towards the peak.
        peak_bytes: the largest number of bytes alive at once, as far as shapes are known.
    """

    steps: tuple[Step, ...]
    slots: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operands: dict[str, int]
    counted: frozenset[int]
    peak_bytes: int


def make_plan(
    order: Sequence[RuntimeOperator], inputs: Sequence[RuntimeOperand], outputs: Sequence[RuntimeOperand]
) -> Plan:
    """Return the plan of a run: slots, steps, and the last use of every value."""
    dying: dict[int, list[int]] = {}
    for each in lifetimes(order):
        dying.setdefault(each.end, []).append(each.operand.slot)
    kept = {operand.slot for operand in outputs}
    operands = {operand.name: operand.slot for op in order for operand in op.outputs}
    needed = _needed(order)
    return Plan(
        steps=tuple(
            _step(op, set(dying.get(index, ())) - kept, op.name in needed)
            for index, op in enumerate(order)
            if op.layer is not None
        ),
        slots=len(operands),
        inputs=tuple(operand.slot for operand in inputs),
        outputs=tuple(operand.slot for operand in outputs),
        operands=operands,
        counted=frozenset(operand.slot for op in order for operand in op.outputs if counts(operand)),
        peak_bytes=peak_bytes(order),
    )


def _needed(order: Sequence[RuntimeOperator]) -> set[str]:
    """Return the names of the operators that an output of the graph depends on."""
    operands: set[str] = set()
    found: set[str] = set()
    for op in reversed(order):
        if op.layer is None or any(operand.name in operands for operand in op.outputs):
            found.add(op.name)
            operands.update(operand.name for operand in op.inputs)
    return found


def _step(op: RuntimeOperator, released: set[int], is_needed: bool) -> Step:
    return Step(
        operator=op,
        inputs=tuple(operand.slot for operand in op.inputs),
        outputs=tuple(operand.slot for operand in op.outputs),
        released=tuple(sorted(released)),
        is_needed=is_needed,
    )
