"""Bodies of operators that choose or repeat, run as the graph around them is: compiled, by their shapes.

What goes in and out are tensors nearly always. Where they are not, and where there is no kernel, the reference runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import numpy as np

from engine.errors import (
    CompileError,
    CompileMemoryError,
    CompilerDefectError,
    EngineError,
    InputError,
    RunCancelledError,
)
from engine.graph import RuntimeGraph
from engine.graph.building.bodies import Body
from engine.tensor import Array, TensorSpec

# Input shapes and inferred results that are remembered.
_MAX_KNOWN: Final = 64


class Runner(Protocol):
    """Executor of one graph, as a body needs it."""

    @property
    def compiles(self) -> bool:
        """Return whether graphs run as machine code."""

    @property
    def run(self) -> Callable[[RuntimeGraph, Sequence[Array], None], list[Array]]:
        """Return the function that runs a graph."""

    def request(self, graph: RuntimeGraph, specs: Sequence[TensorSpec]) -> None:
        """Compile for these shapes in the background, if they are met once more."""

    def prepare(self, graph: RuntimeGraph, specs: Sequence[TensorSpec]) -> Any:
        """Compile ahead of the first run."""

    def close(self) -> None:
        """Give back memory and threads."""


class CompiledBody:
    """A body that a runner of its own runs; many threads may.

    Args:
        runner: of this body alone: what cannot be compiled here says nothing of the graph around.
    """

    def __init__(self, body: Body, runner: Runner) -> None:
        graph = body.graph
        assert isinstance(graph, RuntimeGraph)  # what runtime_graph builds
        self._body = body
        self._graph = graph
        self._runner = runner
        self._lock = threading.Lock()
        self._is_compilable: dict[Any, bool] = {}
        self._foreseen: dict[tuple[TensorSpec, ...], list[object]] = {}
        self._is_new = True

    @property
    def count(self) -> int:
        """How many values it takes."""
        return self._body.count

    def infer(self, inputs: Sequence[object]) -> list[object]:
        """What is known of its results.

        Raises:
            EngineError: an operator does not accept what follows from these inputs.
        """
        # Who runs the operator asks each time, for the size of its results; what follows from shapes alone stays.
        specs = tuple([each for each in inputs if isinstance(each, TensorSpec) and each.value is None])
        if len(specs) != len(inputs):
            return self._body.infer(inputs)
        found = self._foreseen.get(specs)
        if found is None:
            found = self._body.infer(inputs)
            with self._lock:
                if len(self._foreseen) >= _MAX_KNOWN:
                    self._foreseen.clear()
                self._foreseen[specs] = found
        return [*found]

    def run(self, inputs: Sequence[object]) -> list[object]:
        """Return its results.

        Raises:
            EngineError: an operator refuses its operands or fails.
            RunCancelledError: nobody wants it any more.
        """
        arrays = [each for each in inputs if type(each) is np.ndarray]
        if len(arrays) != self.count or not self._runner.compiles:
            return self._body.run(inputs)
        key = tuple([(each.shape, each.dtype) for each in arrays])
        is_compilable = self._is_compilable.get(key)
        if is_compilable is None:
            specs = [TensorSpec(each.shape, each.dtype) for each in arrays]
            if not all(isinstance(each, TensorSpec) for each in self._body.infer(specs)):
                results = self._body.run(arrays)  # only a run tells whether its results are tensors
                self._remember(key, all(type(each) is np.ndarray for each in results))
                return results
            self._remember(key, True)
            if self._is_new:  # the graph around it was met before
                self._is_new = False
                self._runner.request(self._graph, specs)
        elif not is_compilable:
            return self._body.run(arrays)
        try:
            compiled = self._runner.run(self._graph, arrays, None)
        except (RunCancelledError, CompilerDefectError):
            raise
        except CompileMemoryError:  # there may be enough the next time
            return self._body.run(arrays)
        except (CompileError, InputError):  # nothing to compile, or a result that is not a tensor
            compiled = []
        if len(compiled) == len(self._body.results):
            return [*compiled]
        self._remember(key, False)
        return self._body.run(arrays)

    def _remember(self, key: Any, is_compilable: bool) -> None:
        with self._lock:
            if len(self._is_compilable) >= _MAX_KNOWN:
                self._is_compilable.clear()
            self._is_compilable[key] = is_compilable

    def prepare(self, specs: Sequence[TensorSpec]) -> None:
        """Compile it for these operands, if that can be."""
        try:
            self._runner.prepare(self._graph, specs)
        except RunCancelledError:
            raise
        except EngineError:  # a branch for other shapes; a run says what is wrong
            return

    def close(self) -> None:
        """Give back memory and threads; a later run makes them anew."""
        self._runner.close()
