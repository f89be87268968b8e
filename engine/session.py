"""A graph made ready to run: what a program or a server holds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

from engine.errors import ParameterError
from engine.graph import RuntimeGraph, execute
from engine.graph.batching import Run, agrees, batch_size, check_splittable, requested_batch, scales, split
from engine.graph.feeding import feed
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
        graph: a built graph.
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
        self.graph = graph
        self.backend = "reference"
        self.threads = threads
        self._plan = graph.plan
        self._lock = threading.Lock()
        self._batches: dict[int, bool] = {}

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
        taps = tuple(taps)
        watches: list[Watch] = []

        def run_once(arrays: Sequence[Array]) -> list[Array]:
            if not (profile or taps or cancelled):
                return execute(self._plan, arrays)
            watches.append(Watch(self._plan, taps=taps, cancelled=cancelled))
            return execute(self._plan, arrays, watches[-1])

        arrays = self._run_batch(feed(self.graph.inputs, inputs), run_once)
        names = [f"out{index}" for index in range(len(arrays))]
        if not watches:
            return Outputs(arrays, names)
        peak = max(watch.peak_bytes for watch in watches)
        return Outputs(arrays, names, self._profile(watches) if profile else None, _join_taps(watches, taps), peak)

    def describe(self) -> dict[str, Any]:
        """The graph's description together with how this session runs it."""
        return self.graph.describe() | {"backend": self.backend, "threads": self.threads}

    def _run_batch(self, arrays: list[Array], run_once: Run) -> list[Array]:
        batch = requested_batch(self.graph.inputs, arrays)
        if batch is None or self._runs_as_one(batch):
            return run_once(arrays)
        check_splittable(self.graph, arrays)
        return split(arrays, batch_size(self.graph.inputs) or 1, run_once)

    def _runs_as_one(self, batch: int) -> bool:
        with self._lock:
            if batch not in self._batches:
                self._batches[batch] = scales(self.graph, batch) and self._keeps_items_apart
            return self._batches[batch]

    @cached_property
    def _keeps_items_apart(self) -> bool:
        return agrees(self.graph, lambda arrays: execute(self._plan, arrays))

    def _profile(self, watches: Sequence[Watch]) -> list[dict[str, Any]]:
        totals = [sum(times) for times in zip(*(watch.times_ns for watch in watches), strict=True)]
        return [
            {
                "index": step.operator.index,
                "name": step.operator.name,
                "type": step.operator.type,
                "kernel": "reference",
                "time_us": total / 1e3,
            }
            for step, total in zip(self._plan.steps, totals, strict=True)
        ]


def _join_taps(watches: Sequence[Watch], taps: Sequence[str]) -> dict[str, Any]:
    """Values of the tapped operands; a list of them, one a part, where the batch was split."""
    if len(watches) == 1:
        return watches[0].taps
    return {name: [watch.taps[name] for watch in watches] for name in taps}
