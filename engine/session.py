"""A graph made ready to run: what a program or a server holds."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

from engine.errors import ParameterError
from engine.graph import RuntimeGraph, execute
from engine.graph.batching import agrees, batch_size, check_splittable, requested_batch, scales, split
from engine.graph.feeding import feed
from engine.tensor import Array

Backend = Literal["auto", "compiled", "reference"]


class Outputs(list[Array]):
    """The outputs of a run, in graph order.

    Args:
        arrays: the output tensors.
        names: ``out0``, ``out1``, ...
        profile: one entry an operator in execution order, with its time in µs; None unless asked for.
    """

    def __init__(
        self, arrays: Sequence[Array], names: Sequence[str], profile: list[dict[str, Any]] | None = None
    ) -> None:
        super().__init__(arrays)
        self.names = tuple(names)
        self.profile = profile

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

    def run(self, inputs: Sequence[Any] | Mapping[str, Any] | Array, profile: bool = False) -> Outputs:
        """Compute the graph's outputs.

        Args:
            inputs: array-likes in graph order, or by name; a fixed first dimension may be any batch size.
            profile: also measure every operator.

        Returns:
            The outputs in graph order; they share no memory with the inputs or each other.

        Raises:
            InputError: the inputs do not fit the graph.
            EngineError: an operator refuses or fails; names the operator.
        """
        arrays = feed(self.graph.inputs, inputs)
        times_ns: list[list[int]] | None = [] if profile else None
        outputs = self._run_batch(arrays, times_ns)
        return Outputs(outputs, self._names(outputs), None if times_ns is None else self._profile(times_ns))

    def describe(self) -> dict[str, Any]:
        """The graph's description together with how this session runs it."""
        return self.graph.describe() | {"backend": self.backend, "threads": self.threads}

    def _run_batch(self, arrays: list[Array], times_ns: list[list[int]] | None) -> list[Array]:
        batch = requested_batch(self.graph.inputs, arrays)
        if batch is None or self._runs_as_one(batch):
            return self._run_once(arrays, times_ns)
        check_splittable(self.graph, arrays)
        return split(arrays, batch_size(self.graph.inputs) or 1, lambda part: self._run_once(part, times_ns))

    def _run_once(self, arrays: Sequence[Array], times_ns: list[list[int]] | None = None) -> list[Array]:
        if times_ns is None:
            return execute(self._plan, arrays)
        times_ns.append([])
        return execute(self._plan, arrays, times_ns[-1])

    def _runs_as_one(self, batch: int) -> bool:
        with self._lock:
            if batch not in self._batches:
                self._batches[batch] = scales(self.graph, batch) and self._keeps_items_apart
            return self._batches[batch]

    @cached_property
    def _keeps_items_apart(self) -> bool:
        return agrees(self.graph, self._run_once)

    def _names(self, outputs: Sequence[Array]) -> list[str]:
        return [f"out{index}" for index in range(len(outputs))]

    def _profile(self, times_ns: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
        totals = [sum(each) for each in zip(*times_ns, strict=True)]
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
