"""The three ways to run a graph, of which a session chooses one when it is made: ``policy_for(options)``.

ReferenceOnly   every operator by its numpy layer
CompiledOnly    machine code, compiled while the caller waits; an error if it cannot be compiled
Race            machine code if available; the reference until it is compiled, and if it cannot be

The compiler is imported only when something is compiled: without llvmlite the engine still runs, on the reference.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from engine.cancellation import cancelling, check_cancelled
from engine.defects import Defects
from engine.errors import CompileError, CompileMemoryError, EngineError, RunCancelledError
from engine.graph import RuntimeGraph, execute
from engine.graph.building.inference import UnforeseenResultError
from engine.graph.building.subgraphs import Subgraph
from engine.graph.running.watch import Watch
from engine.limits import MEMORY_RETRY_S
from engine.options import Options
from engine.profiling import MeasuredRun, measured
from engine.tensor import Array, specs_of
from engine.toolchain import has_llvm, no_compiler

if TYPE_CHECKING:
    from engine.compiler import CompiledGraph
    from engine.compiler.runtime.instance import AnyInstance
    from engine.compiler.subgraphs import RunnableSubgraph

_ARRAYS: Final = frozenset({np.ndarray})

_log = logging.getLogger("pnnx_serve.engine")


class Policy(Protocol):
    """Way to run graphs.

    Attributes:
        failure: why the reference runs graphs that should be compiled; None while nothing has failed.
    """

    failure: str | None

    def run(
        self,
        graph: RuntimeGraph,
        inputs: Sequence[Array],
        runs: list[MeasuredRun] | None,
        instance: AnyInstance | None = None,
    ) -> list[Array]:
        """Return the outputs of a graph; see ``Executor.run``."""

    def prepare(self, graph: RuntimeGraph, prepare: Callable[[CompiledGraph], dict[str, Any]]) -> dict[str, Any]:
        """Compile a graph before its first run; see ``Executor.prepare``."""


class ReferenceOnly:
    """Policy that never compiles."""

    failure: str | None = None

    def run(
        self,
        graph: RuntimeGraph,
        inputs: Sequence[Array],
        runs: list[MeasuredRun] | None,
        instance: AnyInstance | None = None,
    ) -> list[Array]:
        """Run every operator by its layer."""
        return run_reference(graph, inputs, runs)

    def prepare(self, graph: RuntimeGraph, prepare: Callable[[CompiledGraph], dict[str, Any]]) -> dict[str, Any]:
        """Compile nothing."""
        return {"failure": None}


class CompiledOnly:
    """Policy that answers with machine code or an error.

    The reference still runs cases found during a run: results of unexpected shapes, an index out of range.
    """

    failure: str | None = None

    def __init__(self, graphs: CompiledGraphs) -> None:
        self._graphs = graphs

    def run(
        self,
        graph: RuntimeGraph,
        inputs: Sequence[Array],
        runs: list[MeasuredRun] | None,
        instance: AnyInstance | None = None,
    ) -> list[Array]:
        """Run machine code, compiling it now if there is none."""
        if not _are_tensors(inputs):
            kinds = ", ".join(sorted({type(each).__name__ for each in inputs}))
            raise CompileError("machine code takes only tensors", found=kinds)
        try:
            compiled = self._graphs.of(graph)
            return compiled.run(inputs, instance, runs)
        except UnforeseenResultError:
            return run_reference(graph, inputs, runs)
        except CompileError:
            if _have_elements(inputs):
                raise
            return run_reference(graph, inputs, runs)  # there are no kernels for empty tensors

    def prepare(self, graph: RuntimeGraph, prepare: Callable[[CompiledGraph], dict[str, Any]]) -> dict[str, Any]:
        """Compile, or raise."""
        return prepare(self._graphs.of(graph))


class Race:
    """Policy that answers with whichever is ready first: machine code or the reference.

    Args:
        level: of the log message that the reference runs a graph which should be compiled.
    """

    def __init__(self, graphs: CompiledGraphs, level: int) -> None:
        self._graphs = graphs
        self._level = level
        self._raced: set[int] = set()
        self._retry_at = math.inf
        self._without_memory: list[CompiledGraph] = []
        self.failure: str | None = None

    def run(
        self,
        graph: RuntimeGraph,
        inputs: Sequence[Array],
        runs: list[MeasuredRun] | None,
        instance: AnyInstance | None = None,
    ) -> list[Array]:
        """Run machine code if it exists or is worth waiting for, else race the reference against compilation."""
        compiled = self._graphs.find(graph)
        if instance is None or compiled is None:
            if self._has_given_up() or not _are_tensors(inputs):
                return run_reference(graph, inputs, runs)
            try:
                compiled = self._graphs.of(graph)
                instance = compiled.instance_soon(inputs)
                if instance is None:
                    instance = self._wait_for(graph, compiled, inputs, is_measured=runs is not None)
            except CompileError as error:
                if _have_elements(inputs):  # there are no kernels for empty tensors; later inputs may have elements
                    self._give_up(error, graph)
                return run_reference(graph, inputs, runs)
            except EngineError:  # the reference either refuses these inputs as well, or answers
                return run_reference(graph, inputs, runs)
            if instance is None and (outputs := self._race(graph, compiled, inputs, runs)) is not None:
                return outputs
        try:
            return compiled.run(inputs, instance, runs, waits=runs is not None)
        except (UnforeseenResultError, CompileError):  # other shapes than annotated; no code without Winograd
            return run_reference(graph, inputs, runs)

    def _wait_for(
        self, graph: RuntimeGraph, compiled: CompiledGraph, inputs: Sequence[Array], *, is_measured: bool
    ) -> AnyInstance | None:
        """Compile for these inputs if the answer should wait for it; else compile in the background.

        The shapes of the file are expected again: only their first answer is raced, and only if there is much to
            compile.
        """
        specs = specs_of(inputs)
        if compiled.builder.has_gap(specs):
            return None
        if [port.spec for port in graph.inputs] == specs:
            is_raced = id(graph) not in self._raced and compiled.takes_long(specs)
        else:
            is_raced = not compiled.builder.carries(specs)
        if is_measured or not is_raced:
            return compiled.make(inputs)
        compiled.begin(specs)
        return None

    def _race(
        self, graph: RuntimeGraph, compiled: CompiledGraph, inputs: Sequence[Array], runs: list[MeasuredRun] | None
    ) -> list[Array] | None:
        """Run the reference; stop and return None as soon as the background has compiled for these inputs."""
        try:
            with cancelling(lambda: compiled.is_ready(inputs)):
                outputs = run_reference(graph, inputs, runs)
        except RunCancelledError:
            check_cancelled()  # the caller may have cancelled as well
            return None
        self._raced.add(id(graph))
        return outputs

    def prepare(self, graph: RuntimeGraph, prepare: Callable[[CompiledGraph], dict[str, Any]]) -> dict[str, Any]:
        """Compile, or return why the reference runs the graph."""
        if self._has_given_up():
            return {"failure": self.failure}
        try:
            return prepare(self._graphs.of(graph))
        except CompileError as error:
            self._give_up(error, graph)
            return {"failure": str(error)}

    def _has_given_up(self) -> bool:
        """Return whether the reference runs every graph; after a lack of memory only for a limited time."""
        if time.monotonic() >= self._retry_at:
            self._retry_at, self.failure = math.inf, None
            for compiled in self._without_memory:
                compiled.builder.gap = None
            self._without_memory.clear()
        return self.failure is not None

    def _give_up(self, error: CompileError, graph: RuntimeGraph) -> None:
        """Leave a graph to the reference; existing programs of a bundle stay in use."""
        is_passing = isinstance(error, CompileMemoryError)
        if graph.bundle is not None:
            compiled = self._graphs.of(graph)
            if compiled.builder.gap is not None:
                return
            _log.warning("shapes that the bundle has no program for run on the reference layers: %s", error)
            compiled.builder.gap = str(error)
            if is_passing:
                self._without_memory.append(compiled)
        elif self.failure is None:
            self.failure = str(error)
            _log.log(self._level, "the graph is not compiled and runs on the reference layers: %s", error)
        else:
            return
        if is_passing:
            self._retry_at = time.monotonic() + MEMORY_RETRY_S


class CompiledGraphs:
    """Compiled graphs of a session; many threads may use them.

    Args:
        compiles: compiles a subgraph of an operator that branches or loops.
    """

    def __init__(self, options: Options, defects: Defects, compiles: Callable[[Subgraph], RunnableSubgraph]) -> None:
        self._options, self._defects, self._compiles = options, defects, compiles
        self._lock = threading.Lock()
        self._found: dict[int, tuple[RuntimeGraph, CompiledGraph]] = {}

    def of(self, graph: RuntimeGraph) -> CompiledGraph:
        """Return the compiled graph, which compiles its programs on demand.

        Raises:
            CompileError: there is no compiler.
        """
        found = self._found.get(id(graph))
        if found is not None:
            return found[1]
        with self._lock:
            if id(graph) not in self._found:
                try:
                    from engine.compiler import CompiledGraph
                except ImportError as exc:
                    raise no_compiler(exc) from exc
                made = CompiledGraph(graph, self._options, compiles=self._compiles, defects=self._defects)
                if graph.bundle is not None and not has_llvm():
                    made.builder.gap = "llvmlite is not installed"
                self._found[id(graph)] = graph, made
            return self._found[id(graph)][1]

    def find(self, graph: RuntimeGraph) -> CompiledGraph | None:
        """Return the compiled graph if it exists."""
        found = self._found.get(id(graph))
        return None if found is None else found[1]

    def all(self) -> list[CompiledGraph]:
        """Return all compiled graphs."""
        with self._lock:
            return [compiled for _, compiled in self._found.values()]


def run_reference(graph: RuntimeGraph, inputs: Sequence[Array], runs: list[MeasuredRun] | None) -> list[Array]:
    """Run every operator of a graph by its numpy layer.

    Args:
        runs: receives the measurements; None for no measurement.
    """
    if runs is None:
        return execute(graph.plan, inputs)
    watch = Watch(graph.plan)
    outputs = execute(graph.plan, inputs, watch)
    runs.append(measured(watch))
    return outputs


def _are_tensors(inputs: Sequence[object]) -> bool:
    """Return whether all are arrays, not sequences of tensors or omitted optional values."""
    return _ARRAYS.issuperset(map(type, inputs))


def _have_elements(inputs: Sequence[Array]) -> bool:
    return all(array.size for array in inputs)
