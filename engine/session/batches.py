"""Batches: inputs of another batch size than the file's run by a graph for any batch, or split into parts."""

from __future__ import annotations

import threading

from engine.errors import InputError
from engine.graph import RuntimeGraph
from engine.graph.batch.batching import Batching, Cut, aligned, cut, decide, is_other_batch, refuse
from engine.graph.port import static_specs
from engine.session.executor import Executor
from engine.tensor import Array, TensorSpec, format_shape


class Batches:
    """The batch sizes of one session's graph.

    Args:
        executor: runs it, and knows what is compiled.

    Attributes:
        own: specs of the inputs as the file has them; None where sizes are dynamic.
    """

    def __init__(self, graph: RuntimeGraph, executor: Executor) -> None:
        self._graph = graph
        self._executor = executor
        self._lock = threading.Lock()
        self._batching: Batching | None = None
        self.own = static_specs(graph.inputs)

    @property
    def batching(self) -> Batching:
        """Method of running batches other than the exported one; determined on first use."""
        with self._lock:
            if self._batching is None:
                self._batching = decide(self._graph)
            return self._batching

    def cut(self, arrays: list[Array]) -> Cut:
        """Return how the inputs are run, whatever their batch.

        Args:
            arrays: the inputs, in graph order.

        Raises:
            InputError: the graph cannot run this batch.
        """
        if not is_other_batch(self._graph.inputs, arrays):
            return Cut(self._graph, [arrays])
        batching = self.batching
        if batching.mode == "fixed":
            raise refuse(batching, self._graph.inputs, arrays)
        arrays = aligned(batching, self._graph.inputs, arrays)
        if batching.graph is not None and not self._prefers_parts(arrays[0].shape[batching.inputs[0]], compiling=True):
            return Cut(batching.graph, [arrays])
        return Cut(self._graph, cut(arrays, batching.exported or 1, batching.inputs), batching.outputs or ())

    def graph_for(self, specs: list[TensorSpec], compiling: bool = False) -> tuple[RuntimeGraph, list[TensorSpec]]:
        """Return the graph that runs inputs of these specs, and the specs of a part where it runs them in parts.

        Args:
            compiling: whether to compile the exported shapes, which decides how other batches run.
        """
        ports = [port.spec for port in self._graph.inputs]
        if all(port is None or _is_same(port, spec) for port, spec in zip(ports, specs, strict=True)):
            return self._graph, specs
        if self.batching.mode == "fixed":
            problem = f"the graph does not take other batch sizes ({self.batching.reason})"
            raise InputError(problem, found=format_shape(specs[0].shape))
        batch = specs[0].shape[self.batching.inputs[0]] or 0
        if self.batching.graph is not None and not self._prefers_parts(batch, compiling):
            return self.batching.graph, self.batching.specs(specs, batch)
        return self._graph, self.batching.specs(specs, self.batching.exported)

    def with_batch(self, specs: list[TensorSpec], batch: int) -> list[TensorSpec]:
        """Return the specs of the inputs with another batch size than the file's."""
        ports = [port.spec for port in self._graph.inputs]
        first = ports[0].shape[:1] if ports and ports[0] is not None else ()
        return specs if first == (batch,) else self.batching.specs(specs, batch)

    def _prefers_parts(self, batch: int, compiling: bool) -> bool:
        """Return whether machine code runs a batch faster in parts of the exported size, and these can be joined.

        Args:
            compiling: whether to compile for the exported shapes first; else the answer is no until they are compiled.
        """
        exported, own = self.batching.exported, self.own
        if own is None or not exported or not batch or batch % exported or not self._can_join:
            return False
        if compiling and not self.needs_no_compilation:
            self._executor.prepare(self._graph, own)
        return self._executor.prefers_parts(self._graph, own, batch // exported)

    @property
    def needs_no_compilation(self) -> bool:
        """Return whether the code for the exported shapes exists, or never will."""
        return self.own is None or not self._executor.compiles or self._executor.holds(self._graph, self.own)

    @property
    def _can_join(self) -> bool:
        """Return whether parts of a batch can be joined: the file gives the batch axis of every output."""
        outputs, axes = [port.spec for port in self._graph.outputs], self.batching.outputs
        if axes is None or len(axes) != len(outputs):
            return False
        exported = self.batching.exported
        return all(
            axis is None or (spec is not None and axis < spec.rank and spec.shape[axis] == exported)
            for spec, axis in zip(outputs, axes, strict=True)
        )


def _is_same(port: TensorSpec, spec: TensorSpec) -> bool:
    """Return whether a spec is the file's in the dimensions that may hold a batch."""
    return all(dim in (None, size) for size, dim in zip(spec.shape[:2], port.shape[:2], strict=False))
