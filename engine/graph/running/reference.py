"""The reference executor: every operator by its numpy layer, one after the other. It defines correct results.

All mutable state of a run is its own value table, so any number of threads may run one plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.cancellation import check_cancelled, is_cancellable
from engine.errors import EngineError, InputError
from engine.graph.building.inference import computed_outputs
from engine.graph.planning.plan import Plan, Step
from engine.graph.port import flatten
from engine.graph.running.watch import Watch
from engine.tensor import Array


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
            run_step(step, values)
        for slot in step.released:
            values[slot] = None
    return [values[slot] for slot in plan.outputs]


def run_step(step: Step, values: list[object]) -> None:
    """Run an operator: its inputs are read from the table, its outputs written to it."""
    op = step.operator
    if op.layer is None:
        return
    inputs = [values[slot] for slot in step.inputs]
    try:
        result = op.layer.forward(inputs)
    except EngineError as error:
        raise error.at(op.where) from error.__cause__
    for slot, value in zip(step.outputs, computed_outputs(op, result), strict=True):
        values[slot] = np.asarray(value) if isinstance(value, np.generic) else value


def execute(plan: Plan, inputs: Sequence[Array], watch: Watch | None = None) -> list[Array]:
    """Run the steps of a plan that its outputs need, and all where a watch taps values.

    Args:
        inputs: one array an input of the graph; never written to.
        watch: observes the run.

    Returns:
        The graph's outputs, flattened; none shares memory with an input, a weight or another output.

    Raises:
        EngineError: when an operator refuses its operands or fails; names the operator.
        RunCancelledError: the run was cancelled before an operator.
    """
    values: list[object] = [None] * plan.slots
    for slot, array in zip(plan.inputs, inputs, strict=True):
        values[slot] = _read_only(array)
    if watch is not None:
        watch.begin(values)
    asks, runs_all = is_cancellable(), watch is not None and watch.has_taps
    for step in plan.steps:
        if asks:
            check_cancelled(step.operator.where, "the run was cancelled")
        if watch is not None:
            watch.before()
        if step.is_needed or runs_all:
            run_step(step, values)
        if watch is not None:
            watch.after(step, values)
        for slot in step.released:
            values[slot] = None
    return as_outputs([values[slot] for slot in plan.outputs])


def _read_only(array: Any) -> Any:
    if isinstance(array, list):
        return [_read_only(each) for each in array]  # a sequence of tensors
    if array is None:
        return array
    view = array.view()
    view.flags.writeable = False
    return view


def as_outputs(values: Sequence[object]) -> list[Array]:
    """Return the values of the graph's output operands, flattened, as arrays of their own."""
    taken: set[int] = set()
    return [_owned(_as_array(leaf), taken) for value in values for leaf in flatten(value)]


def _as_array(value: object) -> Array:
    """Return a tensor itself, and a Python number as PyTorch's tracer returns it: 0-dim int64, float32 or bool."""
    if isinstance(value, np.ndarray):
        return value if type(value) is np.ndarray else value.view(np.ndarray)  # the integers of a quantised tensor
    if isinstance(value, float):
        return np.asarray(value, np.float32)
    if isinstance(value, (bool, int, complex)):
        return np.asarray(value)
    raise InputError("an output of the graph is not a tensor", found=f"{type(value).__name__} {value!r}"[:80])


def _owned(array: Array, taken: set[int]) -> Array:
    """Return the array, copied if it is a view of an input or weight (those are read-only) or of another output."""
    root = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    if not array.flags.writeable or id(root) in taken:
        return array.copy()
    taken.add(id(root))
    return array
