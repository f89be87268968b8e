"""Subgraphs of operators that branch or loop, run like the graph around them: compiled, by their shapes.

Inputs and outputs are nearly always tensors. If one is not, or there is no kernel, the reference runs.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

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
from engine.graph.building.subgraphs import Subgraph
from engine.limits import check_size
from engine.tensor import TensorSpec, specs_of

if TYPE_CHECKING:
    from engine.session.executor import Executor

_BYTE: Final = np.dtype(np.uint8)
# Number of input shapes whose inferred results are kept.
_MAX_KNOWN: Final = 64


class CompiledSubgraph:
    """Subgraph with a runner of its own; many threads may use it.

    Args:
        runner: of this subgraph alone: what cannot be compiled here does not affect the outer graph.
    """

    def __init__(self, subgraph: Subgraph, runner: Executor) -> None:
        graph = subgraph.graph
        assert isinstance(graph, RuntimeGraph)  # what runtime_graph builds
        self._subgraph = subgraph
        self._graph = graph
        self._runner = runner
        self._lock = threading.Lock()
        self._is_compilable: dict[Any, bool] = {}
        self._inferred: dict[tuple[TensorSpec, ...], list[object]] = {}
        self._is_new = True

    @property
    def count(self) -> int:
        """Number of operands."""
        return self._subgraph.count

    def infer(self, inputs: Sequence[object]) -> list[object]:
        """Return what is known of the results.

        Raises:
            EngineError: an operator does not accept what follows from these inputs.
        """
        # Every run of the operator needs the size of its results; results that follow from shapes alone are cached.
        specs = tuple([each for each in inputs if isinstance(each, TensorSpec) and each.value is None])
        if len(specs) != len(inputs):
            return self._subgraph.infer(inputs)
        found = self._inferred.get(specs)
        if found is None:
            found = self._subgraph.infer(inputs)
            with self._lock:
                if len(self._inferred) >= _MAX_KNOWN:
                    self._inferred.clear()
                self._inferred[specs] = found
        return [*found]

    def run(self, inputs: Sequence[object]) -> list[object]:
        """Return its results.

        Raises:
            EngineError: an operator refuses its operands or fails.
            RunCancelledError: the run was cancelled.
        """
        arrays = [each for each in inputs if type(each) is np.ndarray]
        if len(arrays) != self.count or not self._runner.compiles:
            return self._subgraph.run(inputs)
        key = tuple([(each.shape, each.dtype) for each in arrays])
        is_compilable = self._is_compilable.get(key)
        if is_compilable is None:
            specs = specs_of(arrays)
            if not self._returns_tensors(specs):
                results = self._subgraph.run(arrays)  # unknown before a run whether its results are tensors
                self._remember(key, all(type(each) is np.ndarray for each in results))
                return results
            self._remember(key, True)
            if self._is_new:  # the outer graph has run before
                self._is_new = False
                self._runner.request(self._graph, specs)
        elif not is_compilable:
            return self._subgraph.run(arrays)
        try:
            compiled = self._runner.run(self._graph, arrays, None)
        except (RunCancelledError, CompilerDefectError):
            raise
        except CompileMemoryError:  # there may be enough memory the next time
            return self._subgraph.run(arrays)
        except (CompileError, InputError):  # nothing to compile, or a result that is not a tensor
            compiled = []
        if len(compiled) == len(self._subgraph.results):
            return [*compiled]
        self._remember(key, False)
        return self._subgraph.run(arrays)

    def _returns_tensors(self, specs: Sequence[TensorSpec]) -> bool:
        """Return whether all results are tensors, as far as is known before a run.

        Inference takes milliseconds for each new size; if a program is valid for it, its sizes are known at once.

        Raises:
            EngineError: the subgraph does not accept these sizes, or they exceed the memory.
        """
        program = self._runner.program(self._graph, specs)
        if program is None or not program.makes_all_outputs:
            return all(isinstance(each, TensorSpec) for each in self._subgraph.infer(specs))
        check_size((program.arena_bytes + program.output_bytes,), _BYTE)
        return True

    def _remember(self, key: Any, is_compilable: bool) -> None:
        with self._lock:
            if len(self._is_compilable) >= _MAX_KNOWN:
                self._is_compilable.clear()
            self._is_compilable[key] = is_compilable

    def prepare(self, specs: Sequence[TensorSpec] | None) -> None:
        """Compile it for these operands, or for typical ones if values decide their sizes; if possible."""
        try:
            if specs is None:
                self._runner.prepare_dynamic(self._graph)
            else:
                self._runner.prepare(self._graph, specs)
        except RunCancelledError:
            raise
        except EngineError:  # a branch for other shapes; a run reports what is wrong
            return

    def annotate(self, operators: Sequence[dict[str, Any]]) -> None:
        """Write the kernels of its operators into their descriptions."""
        self._runner.annotate(self._graph, None, {"operators": operators})

    def close(self) -> None:
        """Release memory and threads; a later run creates them again."""
        self._runner.close()
