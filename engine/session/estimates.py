"""What a run on inputs of some shapes needs, told before it is begun."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from engine.graph import RuntimeGraph
from engine.graph.footprint import Footprint, Footprints
from engine.graph.running.feeding import feed
from engine.session.batches import Batches
from engine.session.executor import Executor
from engine.session.routes import Given, Table, shapes_of
from engine.tensor import TensorSpec

if TYPE_CHECKING:
    from engine.compiler.again import Again


class Known(NamedTuple):
    """Of inputs of some shapes.

    specs: of the inputs of each run, of which there are so many parts.
    again: what runs them as machine code; None where nothing was compiled.
    """

    graph: RuntimeGraph
    specs: list[TensorSpec]
    footprint: Footprint
    parts: int
    again: Again | None


class Estimates:
    """What is known of one session's graph; nothing is computed or compiled to find out.

    Args:
        executor: runs it, and knows what is compiled.
        batches: how other batches than the file's run.
    """

    def __init__(self, graph: RuntimeGraph, executor: Executor, batches: Batches) -> None:
        self._graph = graph
        self._executor = executor
        self._batches = batches
        self._table: Table[Known] = Table()

    def of(self, inputs: Given) -> Known:
        """What is known of such inputs; worked out once for each shape.

        Raises:
            InputError: the inputs do not fit the graph.
        """
        key = shapes_of(inputs)
        known = None if key is None else self._table.get(key)
        if key is not None and known is not None and known.again is None and self._executor.compiles:
            # Nothing was compiled when it was asked for first.
            known = known._replace(again=self._executor.again(known.graph, known.specs))
            self._table.keep(key, known)
        if known is None:
            arrays = feed(self._graph.inputs, inputs)
            known = self._work_out([TensorSpec(array.shape, array.dtype) for array in arrays])
            if key is not None and self._batches.is_settled:
                self._table.keep(key, known)
        return known

    def bytes_of(self, inputs: Given) -> int:
        """As ``Session.estimate_bytes`` says."""
        known = self.of(inputs)
        outputs = known.parts * known.footprint.outputs
        if self.finds_code(known):
            return outputs
        return known.footprint.peak + (outputs if known.parts > 1 else 0)

    def finds_code(self, known: Known) -> bool:
        """Whether a run would find the machine code it needs."""
        if known.again is not None:
            return self._executor.compiles and known.again.is_held
        return self._executor.holds(known.graph, known.specs)

    def _work_out(self, specs: list[TensorSpec]) -> Known:
        graph, of_part = self._batches.graph_for(specs)
        sizes = [
            (spec.shape[0] or 0, part.shape[0] or 1) for spec, part in zip(specs, of_part, strict=True) if spec.shape
        ]
        parts = max((-(-whole // part) for whole, part in sizes), default=1)
        return Known(graph, of_part, Footprints(graph).of(of_part), parts, self._executor.again(graph, of_part))
