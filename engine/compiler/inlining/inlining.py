"""Inlining of branches that input shapes decide, and unrolling of loops with a small known trip count.

Exporters emit a branch for every ``if`` of a script, although most test a rank or a size, and a loop whose trip count
is a dimension. An inlined subgraph gets kernels like the operators around it, and later operators know its shapes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from engine.compiler.inlining.rewriting import Choices, may_be_rewritten, rewritten
from engine.compiler.inlining.trip_counts import MOST_ADDED, Budget, size_of
from engine.errors import EngineError, RunCancelledError
from engine.graph import RuntimeGraph
from engine.ir.dims import is_same
from engine.pnnx import Graph
from engine.tensor import TensorSpec

# Most cached variants of a graph, intermediate ones included, and their operators in total.
MOST_KEPT: Final = 32
MOST_KEPT_OPERATORS: Final = 8_000
# Inlined subgraphs may contain control flow; what is left after this many rounds runs as a subgraph.
MOST_ROUNDS: Final = 16


class Inlining:
    """Graph variants by their control flow decisions; thread-safe."""

    def __init__(self, graph: RuntimeGraph) -> None:
        self._graph = graph
        self._is_plain = not any(map(may_be_rewritten, graph.operators))
        self._kept: OrderedDict[Choices, RuntimeGraph] = OrderedDict()
        self._lock = threading.Lock()
        self._last: tuple[list[TensorSpec], RuntimeGraph] | None = None

    def taken(self, specs: Sequence[TensorSpec]) -> RuntimeGraph:
        """Return the graph with everything inlined that these shapes decide; the graph itself if that is nothing.

        Raises:
            EngineError: an operator does not accept these shapes.
        """
        if self._is_plain:
            return self._graph
        with self._lock:
            if self._last is None or not _are_same(self._last[0], specs):  # a compilation calls this several times
                self._last = list(specs), self._followed(specs)
            return self._last[1]

    def _followed(self, specs: Sequence[TensorSpec]) -> RuntimeGraph:
        """Return the graph after all rounds of inlining."""
        graph = self._graph
        own, budget, choices = size_of(graph.operators), Budget(), Choices()
        for _ in range(MOST_ROUNDS):
            if not any(map(may_be_rewritten, graph.operators)):
                break
            budget.operators = MOST_ADDED + min(0, own - size_of(graph.operators))
            found = rewritten(graph, graph.infer(specs), budget)
            if found is None:
                break
            choices = (*choices, *found.choices)
            try:
                graph = self._built(choices, graph, found.source)
            except RunCancelledError:
                raise
            except EngineError:  # running the subgraphs reports the error, if there is one
                break
        return graph

    def _built(self, choices: Choices, graph: RuntimeGraph, source: Graph) -> RuntimeGraph:
        """Return the graph built from a source; cached by the decisions, while there is room."""
        found = self._kept.pop(choices, None) or graph.rebuilt(source)
        self._kept[choices] = found
        total = sum(len(each.operators) for each in self._kept.values())
        while len(self._kept) > 1 and (len(self._kept) > MOST_KEPT or total > MOST_KEPT_OPERATORS):
            _, oldest = self._kept.popitem(last=False)
            total -= len(oldest.operators)
        return found


def _are_same(one: Sequence[TensorSpec], other: Sequence[TensorSpec]) -> bool:
    """Return whether specs are equal, without a guard where sizes are symbolic."""
    pairs = zip(one, other, strict=False)
    return len(one) == len(other) and all(a.dtype == b.dtype and is_same(a.shape, b.shape) for a, b in pairs)
