"""The dispatch cache: how inputs of known shapes are run, and the resources of a run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

import numpy as np

from engine.errors import EngineError
from engine.graph import RuntimeGraph
from engine.graph.building.inference import follow
from engine.graph.operator import RuntimeOperator
from engine.graph.planning.execution_order import alive_bytes, counts, lifetimes
from engine.graph.port import flatten
from engine.graph.running.feeding import feed
from engine.session.batches import Batches
from engine.session.executor import Executor
from engine.session.state import State
from engine.tensor import Array, TensorSpec, specs_of

if TYPE_CHECKING:
    from engine.compiler.runtime.instance import AnyInstance

T = TypeVar("T")
Given: TypeAlias = Sequence[Any] | Mapping[str, Any] | Array
Shapes: TypeAlias = tuple[Any, ...]

# Entries are small, but a client that keeps sending new shapes must not fill the memory.
_MAX_KNOWN: Final = 256


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


class DispatchCache(dict[Shapes, T]):
    """Cache of facts about inputs by their shapes, of limited size; many threads may use it."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def keep(self, key: Shapes, known: T) -> None:
        """Store a fact; if the cache is full, it is emptied first."""
        with self._lock:
            if len(self) >= _MAX_KNOWN:
                self.clear()
            self[key] = known


class Route(NamedTuple):
    """How inputs of some shapes ran.

    Args:
        places: the position of each input of the graph among the caller's.
        instance: returns the machine code that ran, until it is evicted; then, or if there was none, None.
    """

    graph: RuntimeGraph
    places: list[Any]
    instance: Callable[[], AnyInstance | None]


class Work(NamedTuple):
    """Run on inputs of some shapes: the number of parts, their specs and their graph."""

    graph: RuntimeGraph
    specs: list[TensorSpec]
    parts: int


class Estimates:
    """Resource estimates of one session's graph; nothing is run or compiled for them.

    Args:
        executor: runs it, and knows what is compiled.
        batches: how other batches than the file's run.
    """

    def __init__(self, graph: RuntimeGraph, executor: Executor, batches: Batches) -> None:
        self._graph = graph
        self._executor = executor
        self._batches = batches
        self._known: DispatchCache[Work] = DispatchCache()
        self._footprints: DispatchCache[Footprint] = DispatchCache()

    def of(self, inputs: Given, state: State | None = None) -> Work:
        """Return how such inputs run, found once for each shape.

        Raises:
            InputError: the inputs do not fit the graph.
        """
        if state is not None:
            arrays = state.joined(self._graph.inputs, inputs)
            return Work(self._graph, specs_of(arrays), 1)
        key = shapes_of(inputs)
        known = None if key is None else self._known.get(key)
        if known is None:
            arrays = feed(self._graph.inputs, inputs)
            known = self._work_out(specs_of(arrays))
            if key is not None and self._batches.needs_no_compilation:
                self._known.keep(key, known)
        return known

    def bytes_of(self, inputs: Given, state: State | None = None) -> int:
        """Return the bytes of a run, as defined by ``Session.estimate_bytes``."""
        graph, specs, parts = self.of(inputs, state)
        found_bytes = self._executor.run_bytes(graph, specs)
        if found_bytes is not None:
            return parts * found_bytes
        key = id(graph), *((spec.shape, spec.dtype) for spec in specs)
        found = self._footprints.get(key)
        if found is None:
            found = Footprints(graph).of(specs)
            self._footprints.keep(key, found)
        return found.peak + (parts * found.outputs if parts > 1 else 0)

    def is_compiled(self, inputs: Given, state: State | None = None, *, exact: bool = True) -> bool:
        """Return whether machine code for such inputs is ready, as defined by ``Session.is_compiled``."""
        graph, specs, _ = self.of(inputs, state)
        if state is None and exact:
            return self._executor.holds(graph, specs)
        return self._executor.program(graph, specs) is not None

    def _work_out(self, specs: list[TensorSpec]) -> Work:
        graph, of_part = self._batches.graph_for(specs)
        sizes = [
            (spec.shape[0] or 0, part.shape[0] or 1) for spec, part in zip(specs, of_part, strict=True) if spec.shape
        ]
        return Work(graph, of_part, max((-(-whole // part) for whole, part in sizes), default=1))


def shapes_of(inputs: Given) -> Shapes | None:
    """Return names if there are any, shapes and dtypes; None where not all are arrays."""
    names: tuple[str, ...] | None = None
    given: Collection[Any]
    if isinstance(inputs, (list, tuple)):
        given = inputs
    elif type(inputs) is dict or isinstance(inputs, Mapping):  # a dict is the usual case and faster to test
        names, given = tuple(inputs), inputs.values()
    elif isinstance(inputs, np.ndarray):
        given = (inputs,)
    else:
        return None
    key = [(each.shape, each.dtype) for each in given if type(each) is np.ndarray]
    return (names, *key) if len(key) == len(given) else None


def places_in(inputs: Given, arrays: Sequence[Array]) -> list[Any] | None:
    """Return the position of each array among the caller's inputs; None if one was converted."""
    if isinstance(inputs, np.ndarray):
        inputs = [inputs]
    given: Collection[tuple[Any, Any]] = inputs.items() if isinstance(inputs, Mapping) else list(enumerate(inputs))
    found = {id(each): place for place, each in given}
    if len(found) < len(given) or any(id(array) not in found for array in arrays):
        return None  # an array that is given twice may be either input
    return [found[id(array)] for array in arrays]
