"""Bodies of operators that choose or repeat, run as the graph around them is: compiled, by their shapes.

What goes in and out are tensors nearly always. Where they are not, and where there is no kernel, the reference runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import numpy as np

from engine.errors import CompileError, EngineError, InputError, RunCancelledError
from engine.graph import RuntimeGraph
from engine.graph.building.bodies import Body
from engine.tensor import Array, TensorSpec

Runs = Callable[[Sequence[Array]], "list[Array] | None"]

# Shapes whose way is remembered, the shortest and the hopeless ones.
_MAX_KNOWN: Final = 64


class Runner(Protocol):
    """What runs graphs."""

    @property
    def compiles(self) -> bool:
        """Whether as machine code."""

    def run(self, graph: RuntimeGraph, inputs: Sequence[Array], runs: None) -> list[Array]:
        """The outputs of a graph."""

    def again(self, graph: RuntimeGraph, specs: Sequence[TensorSpec]) -> Any:
        """What runs inputs of these shapes the next time; None where nothing was compiled."""

    def wish(self, graph: RuntimeGraph, specs: Sequence[TensorSpec]) -> None:
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
        self._known: dict[Any, Runs] = {}
        self._tried: set[Any] = set()
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
        """Its results.

        Raises:
            EngineError: an operator refuses its operands or fails.
            RunCancelledError: nobody wants it any more.
        """
        arrays = [each for each in inputs if type(each) is np.ndarray]
        if len(arrays) != self.count:
            return self._body.run(inputs)
        key = tuple([(each.shape, each.dtype) for each in arrays])
        known = self._known.get(key)
        results = None if known is None else known(arrays)
        return [*results] if results is not None else self._run_new(key, arrays)

    def _run_new(self, key: Any, arrays: list[Array]) -> list[object]:
        specs = [TensorSpec(each.shape, each.dtype) for each in arrays]
        if not self._runner.compiles:
            return self._body.run(arrays)
        if key not in self._tried and not self._gives_tensors(specs):
            return self._try(key, arrays)
        if self._is_new:  # who compiles the graph around has met it before
            self._is_new = False
            self._runner.wish(self._graph, specs)
        try:
            results = self._runner.run(self._graph, arrays, None)
        except RunCancelledError:
            raise
        except (CompileError, InputError):  # nothing to compile, or a result that is no tensor
            results = []
        if len(results) != len(self._body.results):
            self._remember(key, self._by_reference)
            return self._body.run(arrays)
        again = self._runner.again(self._graph, specs)
        if again is not None:
            self._remember(key, again.run)
        return [*results]

    def _gives_tensors(self, specs: Sequence[TensorSpec]) -> bool:
        return all(isinstance(each, TensorSpec) for each in self._body.infer(specs))

    def _try(self, key: Any, arrays: Sequence[Array]) -> list[object]:
        """The reference's results, where they tell what nothing else does: whether all of them are tensors."""
        results = self._body.run(arrays)
        if all(type(each) is np.ndarray for each in results):
            with self._lock:
                self._tried = {*list(self._tried)[-_MAX_KNOWN:], key}
        else:
            self._remember(key, self._by_reference)
        return results

    def _by_reference(self, arrays: Sequence[Array]) -> list[Any]:
        return self._body.run(arrays)

    def _remember(self, key: Any, runs: Runs) -> None:
        with self._lock:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[key] = runs

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
