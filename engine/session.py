"""A graph made ready to run: what a program or a server holds."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from engine.errors import ParameterError
from engine.graph import RuntimeGraph, execute
from engine.graph.batching import Batching, decide, is_other_batch, refuse, split
from engine.graph.feeding import feed
from engine.graph.plan import Plan
from engine.graph.watch import Watch
from engine.tensor import Array

Backend = Literal["auto", "compiled", "reference"]


class Outputs(list[Array]):
    """The outputs of a run, in graph order.

    Args:
        arrays: the output tensors.
        names: ``out0``, ``out1``, ...
        profile: one entry an operator in execution order, with its time in µs; None unless asked for.
        taps: value of every tapped operand by name.
        peak_bytes: bytes of intermediate values alive at once; None unless the run was profiled.
    """

    def __init__(
        self,
        arrays: Sequence[Array],
        names: Sequence[str],
        profile: list[dict[str, Any]] | None = None,
        taps: Mapping[str, Any] | None = None,
        peak_bytes: int | None = None,
    ) -> None:
        super().__init__(arrays)
        self.names = tuple(names)
        self.profile = profile
        self.taps = dict(taps or {})
        self.peak_bytes = peak_bytes

    def asdict(self) -> dict[str, Array]:
        """The outputs by name."""
        return dict(zip(self.names, self, strict=True))


class Session:
    """Runs a graph; many threads may call it at once.

    Args:
        graph: a built graph; editing it later changes nothing in this session.
        backend: ``reference`` runs every operator's numpy layer; ``auto`` takes the fastest there is.
        threads: cores one run may use; None for all this process may use.

    Raises:
        ParameterError: an unknown or unavailable backend.
        GraphError: the graph is not built.
    """

    def __init__(self, graph: RuntimeGraph, backend: Backend = "auto", threads: int | None = None) -> None:
        if backend not in ("auto", "reference"):
            raise ParameterError("unknown backend", found=repr(backend), expected="auto or reference")
        if threads is not None and threads < 1:
            raise ParameterError("threads must be positive", found=threads)
        self.graph = copy.copy(graph)  # as it is now: editing the caller's changes nothing here
        self.backend = "reference"
        self.threads = threads
        self._lock = threading.Lock()
        self._batching: Batching | None = None
        self._plan = graph.plan

    def run(
        self,
        inputs: Sequence[Any] | Mapping[str, Any] | Array,
        profile: bool = False,
        *,
        taps: Iterable[str] = (),
        cancelled: Callable[[], bool] | None = None,
    ) -> Outputs:
        """Compute the graph's outputs.

        Args:
            inputs: array-likes in graph order, or by name; a fixed first dimension may be any batch size.
            profile: also measure every operator.
            taps: names of operands whose values are returned too, in ``taps`` of the result.
            cancelled: asked before every operator; when it says yes the run stops with RunCancelledError.

        Returns:
            The outputs in graph order; they share no memory with the inputs or each other.

        Raises:
            InputError: the inputs do not fit the graph.
            EngineError: an operator refuses or fails; names the operator.
        """
        arrays = feed(self.graph.inputs, inputs)
        if not (profile or taps or cancelled):
            return _named(self._run(arrays, lambda plan, part: execute(plan, part)))
        taps = tuple(taps)
        watches: list[Watch] = []

        def run_watched(plan: Plan, part: Sequence[Array]) -> list[Array]:
            watches.append(Watch(plan, taps=taps, cancelled=cancelled, measured=profile))
            return execute(plan, part, watches[-1])

        outputs = _named(self._run(arrays, run_watched))
        outputs.taps = _join_taps(watches, taps)
        if profile:
            outputs.profile = _profile(watches)
            outputs.peak_bytes = max(watch.peak_bytes for watch in watches)
        return outputs

    def describe(self) -> dict[str, Any]:
        """The graph's description together with how this session runs it."""
        batch = self.batching.describe()
        return self.graph.describe() | {"backend": self.backend, "threads": self.threads, "batch": batch}

    def _run(self, arrays: list[Array], run_plan: Callable[[Plan, Sequence[Array]], list[Array]]) -> list[Array]:
        if not is_other_batch(self.graph.inputs, arrays):
            return run_plan(self._plan, arrays)
        if self.batching.graph is not None:
            return run_plan(self.batching.graph.plan, arrays)
        if self.batching.mode == "fixed":
            raise refuse(self.batching, self.graph.inputs, arrays)
        return split(arrays, self.batching.exported or 1, lambda part: run_plan(self._plan, part))

    @property
    def batching(self) -> Batching:
        """How batches other than the exported one run; found out when first asked, by trying a batch of two."""
        with self._lock:
            if self._batching is None:
                self._batching = decide(self.graph)
            return self._batching


def _named(arrays: Sequence[Array]) -> Outputs:
    return Outputs(arrays, [f"out{index}" for index in range(len(arrays))])


def _profile(watches: Sequence[Watch]) -> list[dict[str, Any]]:
    """The steps of a run with their times, summed over the parts of a split batch."""
    totals = [sum(times) for times in zip(*(watch.times_ns for watch in watches), strict=True)]
    return [
        {"index": op.index, "name": op.name, "type": op.type, "kernel": "reference", "time_us": total / 1e3}
        for op, total in zip((step.operator for step in watches[0].plan.steps), totals, strict=True)
    ]


def _join_taps(watches: Sequence[Watch], taps: Sequence[str]) -> dict[str, Any]:
    """Values of the tapped operands; a list of them, one a part, where the batch was split."""
    if len(watches) == 1:
        return watches[0].taps
    return {name: [watch.taps[name] for watch in watches] for name in taps}
