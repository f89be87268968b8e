"""Observation of a run: times, values, memory."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from engine.errors import InputError
from engine.graph.planning.plan import Plan, Step
from engine.tensor import Array


class Watch:
    """Observer of one run; a run without one has no overhead.

    Args:
        plan: the plan that will run.
        taps: names of operands whose values are kept.
        measured: whether times and memory are measured.

    Attributes:
        plan: the plan that runs.
        times_ns: the time of every step so far.
        taps: operand name -> value; arrays are copies.
        peak_bytes: the largest number of bytes found alive after a step, before values are released.
        sizes: bytes of the values that counted towards it, by slot.

    Raises:
        InputError: a tap names no operand of the graph.
    """

    def __init__(self, plan: Plan, *, taps: Iterable[str] = (), measured: bool = True) -> None:
        self.plan = plan
        self._wanted = {_slot(plan, name): name for name in taps}
        self._measured = measured
        self._start = 0
        self.times_ns: list[int] = []
        self.taps: dict[str, object] = {}
        self.peak_bytes = 0
        self.sizes: dict[int, int] = {}

    @property
    def has_taps(self) -> bool:
        """Return whether values of operands are kept, also of those that no output depends on."""
        return bool(self._wanted)

    def begin(self, values: Sequence[object]) -> None:
        """Record the inputs, once they are in the value table."""
        self._keep(self.plan.inputs, values)

    def before(self) -> None:
        """Start the timer of a step."""
        self._start = time.perf_counter_ns()

    def after(self, step: Step, values: Sequence[object]) -> None:
        """Record a step's time, values and memory, before values are released."""
        end = time.perf_counter_ns()
        self._keep(step.outputs, values)
        if self._measured:
            self.times_ns.append(end - self._start)
            self._measure_memory(step, values)

    def _measure_memory(self, step: Step, values: Sequence[object]) -> None:
        for slot in self.plan.counted.intersection(step.outputs):
            value = values[slot]
            if isinstance(value, np.ndarray):
                self.sizes[slot] = value.nbytes
        alive = {id(value): value.nbytes for value in self._arrays(values)}  # a value with two names counts once
        self.peak_bytes = max(self.peak_bytes, sum(alive.values()))

    def _arrays(self, values: Sequence[object]) -> Iterator[Array]:
        for slot in self.plan.counted:
            value = values[slot]
            if isinstance(value, np.ndarray):
                yield value

    def _keep(self, slots: Sequence[int], values: Sequence[object]) -> None:
        for slot in self._wanted.keys() & set(slots):
            value = values[slot]
            self.taps[self._wanted[slot]] = value.copy() if isinstance(value, np.ndarray) else value


def _slot(plan: Plan, name: str) -> int:
    if name not in plan.operands:
        known = ", ".join(list(plan.operands)[:8])
        raise InputError("unknown operand in taps", found=repr(name), expected=f"one of {known}, ...")
    return plan.operands[name]
