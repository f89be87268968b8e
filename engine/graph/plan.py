"""The execution order worked out ahead: which slots each step reads, writes and may forget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.graph.operand import RuntimeOperand
from engine.graph.operator import RuntimeOperator


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One operator of a run, its operands replaced by places in the run's value table.

    Args:
        inputs, outputs: slots read and written.
        released: slots nobody reads after this step.
    """

    operator: RuntimeOperator
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    released: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All steps of a run; immutable, shared by every thread that runs the graph."""

    steps: tuple[Step, ...]
    slots: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def make_plan(
    order: Sequence[RuntimeOperator], inputs: Sequence[RuntimeOperand], outputs: Sequence[RuntimeOperand]
) -> Plan:
    """Lay out a run: slots, steps, and the last use of every value."""
    computed = [op for op in order if op.layer is not None]
    kept = {operand.slot for operand in outputs}
    last_use = {operand.slot: op for op in computed for operand in (*op.outputs, *op.inputs)}
    steps = tuple(
        Step(
            operator=op,
            inputs=tuple(operand.slot for operand in op.inputs),
            outputs=tuple(operand.slot for operand in op.outputs),
            released=tuple(
                sorted({o.slot for o in (*op.inputs, *op.outputs) if last_use[o.slot] is op and o.slot not in kept})
            ),
        )
        for op in computed
    )
    slots = 1 + max((operand.slot for op in order for operand in op.outputs), default=-1)
    return Plan(
        steps=steps,
        slots=slots,
        inputs=tuple(operand.slot for operand in inputs),
        outputs=tuple(operand.slot for operand in outputs),
    )
