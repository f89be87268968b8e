"""Execution of the operators of a run, one by one, by their numpy layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from engine.errors import EngineError
from engine.graph.building.inference import computed_outputs
from engine.graph.planning.plan import Plan, Step

# Number of elements up to which no two operands have a large outer product.
_FEW: Final = 4096


def run_steps(plan: Plan, inputs: Sequence[object]) -> list[object]:
    """Return the results of a plan for values of any kind, passed on between operators.

    Raises:
        EngineError: when an operator refuses its operands or fails; names the operator.
    """
    values: list[object] = [None] * plan.slots
    for slot, value in zip(plan.inputs, inputs, strict=True):
        values[slot] = value
    for step in plan.steps:
        if step.is_needed:
            run_step(step, values, True)
        for slot in step.released:
            values[slot] = None
    return [values[slot] for slot in plan.outputs]


def _is_large(inputs: Sequence[object]) -> bool:
    """Return whether results may be too large although they were not for other values of the same shapes."""
    return sum(each.size for each in inputs if isinstance(each, np.ndarray)) > _FEW


def run_step(step: Step, values: list[object], is_new: bool) -> None:
    """Run an operator: its inputs are read from the table, its outputs written to it."""
    op = step.operator
    if op.layer is None:
        return
    inputs = [values[slot] for slot in step.inputs]
    try:
        if step.is_dynamic and (is_new or _is_large(inputs)):
            op.layer.check_results(inputs)
        result = op.layer.forward(inputs)
    except EngineError as error:
        raise error.at(op.where) from error.__cause__
    for slot, value in zip(step.outputs, computed_outputs(op, result), strict=True):
        values[slot] = np.asarray(value) if isinstance(value, np.generic) else value
