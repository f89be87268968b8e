"""Inlining of branches that input shapes decide, and unrolling of loops with a small known trip count.

Exporters emit a branch for every ``if`` of a script, although most test a rank or a size, and a loop whose trip count
is a dimension. An inlined subgraph gets kernels like the operators around it, and later operators know its shapes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.compiler.inlining.sequences import Sequences
from engine.compiler.inlining.splice import Splice
from engine.compiler.inlining.trip_counts import (
    MOST_ADDED,
    Budget,
    size_of,
    trip_count_of_loop,
    trip_count_of_map,
    trip_count_of_scan,
    truth_of,
)
from engine.compiler.inlining.unrolling import unroll_loop, unroll_map, unroll_scan
from engine.errors import EngineError, RunCancelledError, ShapeError
from engine.graph import RuntimeGraph, RuntimeOperator
from engine.ir.dims import is_same
from engine.layers.onnx.control.control import If, Loop, Scan, SequenceMap
from engine.layers.onnx.control.sequence import ConcatFromSequence, SequenceAt, SequenceLength, SplitToSequence
from engine.pnnx import Graph
from engine.tensor import TensorSpec

Choices = tuple[tuple[str, object], ...]


@dataclass(frozen=True, slots=True)
class InlinedRound:
    """Source, and the decisions made; equal decisions on one graph give equal sources."""

    source: Graph
    choices: Choices


def is_inlinable(op: RuntimeOperator) -> bool:
    """Return whether shapes may decide what becomes of an operator."""
    return type(op.definition) in _HANDLERS


def inline_once(graph: RuntimeGraph, values: Mapping[str, object], budget: Budget) -> InlinedRound | None:
    """Return the source of a graph with everything decided inlined; None if nothing is.

    Args:
        values: known spec or value of every operand.
    """
    walk = _Rewriter(graph, values, budget)
    operators = {op.name: op for op in graph.operators}
    choices: list[tuple[str, object]] = []
    for source in graph.source.operators:
        op = operators[source.name]
        handler = _HANDLERS.get(type(op.definition))
        choice = handler(walk, op) if handler is not None else None
        if choice is None:
            walk.splice.add(source)
            walk.sequences.follow(op)
        else:
            choices.append((op.name, choice))
    return InlinedRound(walk.splice.source, tuple(choices)) if choices else None


class _Rewriter:
    """State of a walk over a graph."""

    def __init__(self, graph: RuntimeGraph, values: Mapping[str, object], budget: Budget) -> None:
        self.splice = Splice(graph.source)
        self.sequences = Sequences(self.splice, values, budget)
        self._values, self._budget = values, budget

    def known(self, op: RuntimeOperator) -> list[Any]:
        """Return the known specs or values of an operator's operands."""
        return [self._values[each.name] for each in op.inputs]

    def branch(self, op: RuntimeOperator) -> object:
        """Inline the branch taken."""
        choice: Any = op.definition
        condition = truth_of(self._values[op.inputs[0].name])
        if condition is None:
            return None
        try:
            body = choice.branch(condition)
        except ShapeError:  # there is none; a run reports it
            return None
        given = choice.captured(condition, self.splice.names(each.name for each in op.inputs[1:]))
        self.splice.branch(op.name, body, given, [each.name for each in op.outputs])
        return condition

    def loop(self, op: RuntimeOperator) -> object:
        """Unroll a loop."""
        loop: Any = op.definition
        iterations = trip_count_of_loop(loop, self.known(op), self._budget)
        if iterations is None or not self._add(iterations, loop.subgraph("body"), loop.count):
            return None
        empty = [] if iterations else loop.nothing(self.known(op))
        unroll_loop(self.splice, op, iterations, empty)
        return (iterations, *(each.shape for each in empty))

    def scan(self, op: RuntimeOperator) -> object:
        """Unroll a scan."""
        scan: Any = op.definition
        length = trip_count_of_scan(scan, self.known(op), self._budget)
        if length is None or not self._add(length, scan.subgraph("body"), scan.count + length * scan.inputs):
            return None
        axes = scan.axes(scan.input_axes, scan.parts(self.known(op))[1])
        empty = [] if length else scan.nothing(self.known(op))
        unroll_scan(self.splice, op, axes, length, empty)
        return (length, *axes, *(each.shape for each in empty))

    def map(self, op: RuntimeOperator) -> object:
        """Unroll a map."""
        layer: Any = op.definition
        known = self.known(op)
        iterations = trip_count_of_map(layer, known, self._budget)
        columns: list[Any] = []
        for each, spec in zip(op.inputs[: layer.inputs], known, strict=False):
            is_list = isinstance(spec, (list, tuple))
            columns.append(self.sequences.items(each.name) if is_list else self.splice.names([each.name])[0])
        if iterations is None or None in columns or not self._add(iterations, layer.subgraph("body"), layer.count):
            return None
        items = unroll_map(self.splice, op, columns)
        for outer, names in zip(op.outputs, items, strict=True):
            self.sequences.record(outer.name, names)
        return tuple(each if isinstance(each, str) else tuple(each) for each in columns)

    def sequence(self, op: RuntimeOperator) -> object:
        """Replace a list operator."""
        return self.sequences.replace_by_items(op)

    def _add(self, iterations: int, body: Any, others: int) -> bool:
        return self._budget.add(iterations * size_of(body.operators) + others)


_HANDLERS: Final[Mapping[type | None, Callable[[_Rewriter, RuntimeOperator], object]]] = {
    If: _Rewriter.branch,
    Loop: _Rewriter.loop,
    Scan: _Rewriter.scan,
    SequenceMap: _Rewriter.map,
    SequenceAt: _Rewriter.sequence,
    SequenceLength: _Rewriter.sequence,
    ConcatFromSequence: _Rewriter.sequence,
    SplitToSequence: _Rewriter.sequence,
}


# Most cached variants of a graph, intermediate ones included, and their operators in total.
MOST_KEPT: Final = 32
MOST_KEPT_OPERATORS: Final = 8_000
# Inlined subgraphs may contain control flow; what is left after this many rounds runs as a subgraph.
MOST_ROUNDS: Final = 16


class Inlining:
    """Graph variants by their control flow decisions; thread-safe."""

    def __init__(self, graph: RuntimeGraph) -> None:
        self._graph = graph
        self._has_no_control_flow = not any(map(is_inlinable, graph.operators))
        self._kept: OrderedDict[Choices, RuntimeGraph] = OrderedDict()
        self._lock = threading.Lock()
        self._last: tuple[list[TensorSpec], RuntimeGraph] | None = None

    def graph_for(self, specs: Sequence[TensorSpec]) -> RuntimeGraph:
        """Return the graph with everything inlined that these shapes decide; the graph itself if that is nothing.

        Raises:
            EngineError: an operator does not accept these shapes.
        """
        if self._has_no_control_flow:
            return self._graph
        with self._lock:
            if self._last is None or not _are_same(self._last[0], specs):  # a compilation calls this several times
                self._last = list(specs), self._inlined(specs)
            return self._last[1]

    def _inlined(self, specs: Sequence[TensorSpec]) -> RuntimeGraph:
        """Return the graph after all rounds of inlining."""
        graph = self._graph
        own, budget, choices = size_of(graph.operators), Budget(), Choices()
        for _ in range(MOST_ROUNDS):
            if not any(map(is_inlinable, graph.operators)):
                break
            budget.operators = MOST_ADDED + min(0, own - size_of(graph.operators))
            found = inline_once(graph, graph.infer(specs), budget)
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
