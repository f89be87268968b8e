"""Estimated memory of a run from the shapes of its inputs alone: an upper bound, before anything is allocated.

The shapes are followed through the graph, and values live as long as in ``lifetimes``. The running operator adds copies
of its operands and its result (padding, casts, terms of an expression), and the scratch memory that its layer states.
Sizes that are unknown before a run count as zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from engine.errors import EngineError
from engine.graph.building.inference import follow
from engine.graph.operator import RuntimeOperator
from engine.graph.planning.execution_order import alive_bytes, counts, lifetimes
from engine.graph.port import flatten
from engine.graph.runtime_graph import RuntimeGraph
from engine.tensor import TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Bytes of a run in addition to its inputs.

    Args:
        peak: most bytes alive at once, outputs included.
        outputs: bytes of the outputs.
    """

    peak: int
    outputs: int


class Footprints:
    """Footprints of one graph by the specs of its inputs; data that does not depend on them is computed once."""

    def __init__(self, graph: RuntimeGraph) -> None:
        self._graph = graph
        self._lifetimes = lifetimes(graph.operators)

    def of(self, specs: Sequence[TensorSpec]) -> Footprint:
        """Return the footprint of a run; of one that an operator will refuse, up to that operator."""
        order = self._graph.operators
        values: dict[str, object] = {port.operand: spec for port, spec in zip(self._graph.inputs, specs, strict=True)}
        with suppress(EngineError):
            follow(order, values)
        sizes = (
            (each, _bytes(values.get(each.operand.name)) if counts(each.operand) else 0) for each in self._lifetimes
        )
        alive = alive_bytes(sizes)
        peak = max((each + _scratch(op, values) for op, each in zip(order, alive, strict=True)), default=0)
        last = self._graph.outputs
        return Footprint(peak=peak, outputs=sum(_bytes(values.get(name)) for name in {port.operand for port in last}))


def _scratch(op: RuntimeOperator, values: Mapping[str, object]) -> int:
    if op.layer is None or not all(operand.name in values for operand in (*op.inputs, *op.outputs)):
        return 0
    results = [values[operand.name] for operand in op.outputs]
    copies = sum(_bytes(value) for value in results) + sum(
        _bytes(values[operand.name]) for operand in op.inputs if counts(operand) or operand.producer is None
    )
    first = results[0] if results else None
    if not isinstance(first, TensorSpec):
        return copies
    return copies + op.layer.scratch_bytes(first, [values[operand.name] for operand in op.inputs])


def _bytes(value: object) -> int:
    """Return the bytes of a tensor, or of all in a container; 0 for unknown values."""
    return sum((leaf.size or 0) * leaf.dtype.itemsize for leaf in flatten(value) if isinstance(leaf, TensorSpec))
