"""Trip counts of loops, found by inferring the subgraph iteration by iteration.

The trip count is unknown if an iteration is invalid, if a condition depends on values of the run, or if results cannot
be stacked: then the run itself reports the error at that iteration.

Limits of unrolling: files determine trip counts, and subgraphs contain loops.

An unrolled iteration costs about 0.8 ms of compilation an operator, although kernels share their code, and saves 25 µs
or more in every run. Loops with more iterations or larger subgraphs run iteration by iteration.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from engine.errors import EngineError, RunCancelledError
from engine.graph import RuntimeOperator
from engine.layers.control.subgraphs import WithSubgraphs
from engine.layers.onnx.control.control import Loop, Scan, SequenceMap, Stacking
from engine.layers.onnx.operands.constants import whole_number
from engine.layers.operands.axes import may_match
from engine.layers.operands.precision import INT64
from engine.tensor import TensorSpec, is_known, known_value, spec_of

MOST_ITERATIONS: Final = 64
"""Most iterations of an unrolled loop."""

MOST_ADDED: Final = 2_000
"""Most operators that unrolling adds to a graph, nested subgraphs included."""

MOST_BYTES: Final = 32 << 20
"""Largest weights of a subgraph times its iterations: passes may transform each copy."""

MOST_ANALYSED: Final = 4 * MOST_ADDED
"""Most operators analysed, iteration by iteration, to find trip counts."""


@dataclass(slots=True)
class Budget:
    """Remaining budget.

    Args:
        operators: that may be added.
        analysed: operators that may be analysed.
    """

    operators: int = MOST_ADDED
    analysed: int = MOST_ANALYSED

    def iterations(self, body: Any) -> int:
        """Return the number of iterations of a subgraph that may be unrolled."""
        most = min(MOST_ITERATIONS, self.operators // max(1, size_of(body.operators)))
        weights = sum(each.data.nbytes for op in body.operators for each in op.attributes.values())
        return min(most, MOST_BYTES // weights) if weights else most

    def charge_analysis(self, body: Any) -> bool:
        """Return whether all operators of a subgraph may be analysed once more, and charge them."""
        self.analysed -= size_of(body.operators)
        return self.analysed >= 0

    def add(self, operators: int) -> bool:
        """Return whether this many operators may be added, and charge them."""
        if operators > self.operators:
            return False
        self.operators -= operators
        return True


def size_of(operators: Iterable[RuntimeOperator]) -> int:
    """Return the number of operators, subgraphs included."""
    total, pending = 0, [operators]
    while pending:
        for op in pending.pop():
            total += 1
            if isinstance(op.definition, WithSubgraphs):
                pending.extend(body.operators for _, body in op.definition.annotations.subgraphs)
    return total


_TRUE = spec_of(np.array(True), with_value=True)


def trip_count_of_loop(loop: Loop, operands: Sequence[Any], budget: Budget) -> int | None:
    """Return the trip count of a loop; None if it is unknown or too large to unroll.

    Args:
        operands: known specs or values of its operands.
    """
    count, condition, states, captured = loop.parts(operands)
    most = _number(count) if loop.has_count else None
    goes_on = truth_of(condition) if loop.has_condition else True
    if goes_on is None or (most is None and loop.has_count):
        return None
    body, iteration, stacks = loop.subgraph("body"), 0, _Stacks(loop.count - loop.states)
    limit = budget.iterations(body)
    while goes_on and (most is None or iteration < most):
        number = spec_of(np.array(iteration, INT64), with_value=True)
        results = _infer_iteration(body, [number, _TRUE, *states, *captured], budget) if iteration < limit else None
        if results is None or len(results) != 1 + loop.count or not stacks.take(results[1 + loop.states :]):
            return None
        states, iteration = results[1 : 1 + loop.states], iteration + 1
        if iteration != most:
            goes_on = truth_of(results[0])
        if goes_on is None:
            return None
    return iteration or _of_nothing(loop, operands)


def trip_count_of_scan(scan: Scan, operands: Sequence[Any], budget: Budget) -> int | None:
    """Return the number of slices of a scan; None if it is unknown or too large to unroll."""
    scanned, captured = scan.parts(operands)[1:]
    states: Sequence[Any] = operands[: scan.states]
    if not scanned or not all(isinstance(each, TensorSpec) for each in scanned):
        return None
    try:
        axes = scan.axes(scan.input_axes, scanned)
    except EngineError:
        return None
    lengths: set[int | None] = {each.shape[axis] for each, axis in zip(scanned, axes, strict=True)}
    length = lengths.pop()
    body = scan.subgraph("body")
    if lengths or length is None or length > budget.iterations(body):
        return None
    slices, stacks = scan.slices(scanned, axes), _Stacks(scan.count - scan.states)
    for _ in range(length):
        results = _infer_iteration(body, [*states, *slices, *captured], budget)
        if results is None or len(results) != scan.count or not stacks.take(results[scan.states :]):
            return None
        is_settled = _are_same(states, results[: scan.states])
        states = results[: scan.states]
        if is_settled:  # and so are all further iterations
            break
    return length or _of_nothing(scan, operands)


def _of_nothing(layer: Stacking, operands: Sequence[Any]) -> int | None:
    """Return 0 for a loop without iterations if the shapes of its empty scan outputs are known, else None."""
    items = layer.items(operands)
    return 0 if all(isinstance(each, TensorSpec) and each.is_static for each in items) else None


def trip_count_of_map(layer: SequenceMap, operands: Sequence[Any], budget: Budget) -> int | None:
    """Return the number of items of a sequence; None if it is unknown or too large to unroll."""
    (sequence, *others), captured = operands[: layer.inputs], operands[layer.inputs :]
    body = layer.subgraph("body")
    if not isinstance(sequence, (list, tuple)) or len(sequence) > budget.iterations(body):
        return None
    if not all(isinstance(each, (TensorSpec, list, tuple)) for each in others):
        return None
    for iteration, item in enumerate(sequence):
        lists = [each for each in others if isinstance(each, (list, tuple))]
        if any(len(each) <= iteration for each in lists):
            return None
        given = [each if isinstance(each, TensorSpec) else each[iteration] for each in others]
        results = _infer_iteration(body, [item, *given, *captured], budget)
        if results is None or len(results) != layer.count:
            return None
    return len(sequence)


class _Stacks:
    """Scan outputs: tensors of one dtype whose shapes can be stacked."""

    def __init__(self, count: int) -> None:
        self._known: list[TensorSpec | None] = [None] * count

    def take(self, results: Sequence[Any]) -> bool:
        """Add the results of an iteration; return whether they fit the earlier ones."""
        for k, result in enumerate(results):
            known = self._known[k]
            if not isinstance(result, TensorSpec) or result.dtype.hasobject:
                return False
            if known is not None and (known.dtype != result.dtype or not may_match(known.shape, result.shape)):
                return False
            self._known[k] = result
        return True


def _infer_iteration(body: Any, given: Sequence[Any], budget: Budget) -> Sequence[Any] | None:
    """Return the inferred results of an iteration; None if it is invalid or the budget is spent."""
    if len(given) != body.count or not budget.charge_analysis(body):
        return None
    try:
        results: Sequence[Any] = body.infer(given)
    except RunCancelledError:
        raise
    except EngineError:
        return None
    return results


def _are_same(before: Sequence[Any], after: Sequence[Any]) -> bool:
    """Return whether an iteration leaves the states unchanged, as far as they are known."""
    return all(
        isinstance(a, TensorSpec) and isinstance(b, TensorSpec) and a == b and a.value is None and b.value is None
        for a, b in zip(before, after, strict=True)
    )


def _number(count: Any) -> int | None:
    try:
        return whole_number(count, "the number of iterations")
    except EngineError:
        return None


def truth_of(condition: Any) -> bool | None:
    """Return the value of a condition; None if only a run determines it, or it is not a single value."""
    known = known_value(condition)
    value = np.asarray(known) if is_known(known) else np.empty(0)
    return bool(value.reshape(())[()]) if value.size == 1 else None
