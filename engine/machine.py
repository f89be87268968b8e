"""A session's side of the compiler: which graphs run as machine code, and what happens where they cannot.

The compiler is imported only when a session wants it: without llvmlite the engine still runs, on the reference.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from engine.errors import CompileError, EngineError
from engine.graph import RuntimeGraph, execute
from engine.graph.building.inference import UnforeseenResultError
from engine.graph.running.watch import Watch
from engine.options import Options
from engine.progress import Progress
from engine.tensor import Array, TensorSpec

if TYPE_CHECKING:
    from engine.compiler import CompiledGraph
    from engine.compiler.runtime.instance import Instance

_log = logging.getLogger("pnnx_serve.engine")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """What one profiled run took, as plain data: a row an operator, a row a kernel."""

    rows: list[dict[str, Any]]
    kernels: list[dict[str, Any]]
    peak_bytes: int


class Machine:
    """Compiles a session's graphs when they first run.

    Attributes:
        failure: why the graph runs on the reference after all; None while it does not.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._must_compile = options.must_compile
        self._graphs: dict[int, tuple[RuntimeGraph, CompiledGraph]] = {}
        self._lock = threading.Lock()
        self.failure: str | None = None

    def run(
        self,
        graph: RuntimeGraph,
        inputs: Sequence[Array],
        cancelled: Callable[[], bool] | None,
        runs: list[MeasuredRun] | None,
    ) -> list[Array]:
        """The outputs of a graph.

        Args:
            runs: receives what the run took; None where it is not measured.

        Raises:
            CompileError: it must be compiled and cannot.
            EngineError: an operator refuses or fails.
        """
        if self.failure is None:
            try:
                compiled = self._compiled(graph)
                specs = [TensorSpec(array.shape, array.dtype) for array in inputs]
                instance = compiled.find(specs)
                if instance is None and runs is None and self._may_wait(graph, specs):
                    compiled.begin(specs)
                    return _run_reference(graph, inputs, cancelled, runs)
                instance = instance or compiled.instance(specs)
            except CompileError as error:
                # There are no kernels for nothing; what comes next may have elements.
                if all(array.size for array in inputs):
                    self._fall_back(error)
            except EngineError:
                if self._must_compile:
                    raise
                return _run_reference(graph, inputs, cancelled, runs)  # refuses as well, or answers
            except Exception as exc:
                self._fall_back(_defect(exc))
            else:
                try:
                    if runs is not None:
                        return _profile(compiled, instance, inputs, cancelled, runs)
                    reference = None if self._must_compile else partial(_run_reference, graph, inputs, cancelled, None)
                    return compiled.run(inputs, cancelled, instance, reference)
                except UnforeseenResultError:  # the file's shapes are those of one run; here they are others
                    return _run_reference(graph, inputs, cancelled, runs)
        return _run_reference(graph, inputs, cancelled, runs)

    def close(self) -> None:
        """Give back the memory and the threads of what was compiled; a later run makes it anew."""
        with self._lock:
            graphs = [compiled for _, compiled in self._graphs.values()]
        for compiled in graphs:
            compiled.close()

    def holds(self, graph: RuntimeGraph, specs: Sequence[TensorSpec]) -> bool:
        """Whether machine code for these shapes is there, and the memory it runs in."""
        with self._lock:
            found = self._graphs.get(id(graph))
        return found is not None and self.failure is None and found[1].is_ready(specs)

    def give_back(self, graph: RuntimeGraph) -> None:
        """Weights were read that machine code does not need: the system may have their pages, as far as it can."""
        if self.failure is None:
            try:
                from engine.compiler.runtime.pages import release
            except ImportError:  # no compiler: the layers will want them again
                return
            release(graph)

    def _may_wait(self, graph: RuntimeGraph, specs: Sequence[TensorSpec]) -> bool:
        """Whether the reference should answer where there is no machine code for these shapes.

        Not for the shapes of the file: they are compiled when the graph first runs, at the latest.
        """
        return not self._must_compile and [port.spec for port in graph.inputs] != list(specs)

    def prefers_parts(self, graph: RuntimeGraph, specs: Sequence[TensorSpec], parts: int) -> bool:
        """Whether so many runs of the file's shapes are faster than one of a batch: compiles for them.

        Raises:
            CompileError: it must be compiled and cannot.
        """
        if self.failure is None:
            try:
                return self._compiled(graph).prefers_parts(specs, parts)
            except CompileError as error:
                self._fall_back(error)
            except EngineError:
                raise
            except Exception as exc:
                self._fall_back(_defect(exc))
        return False

    def prepare(
        self,
        graph: RuntimeGraph,
        specs: Sequence[TensorSpec],
        *,
        refresh: bool = False,
        progress: Progress | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> dict[str, Any]:
        """Compile a graph for inputs of these shapes ahead of its first run.

        Args:
            refresh: compile even what was compiled before.
            cancelled: asked between kernels, and the like, whether it is no longer wanted.

        Returns:
            What was made, as plain data; only ``failure`` where nothing was.

        Raises:
            CompileError: it must be compiled and cannot.
            RunCancelledError: ``cancelled`` said so.
        """
        if self.failure is None:
            try:
                compiled = self._compiled(graph)
                return compiled.prepare(specs, refresh=refresh, progress=progress, cancelled=cancelled)
            except CompileError as error:
                self._fall_back(error)
            except EngineError:
                raise
            except Exception as exc:
                self._fall_back(_defect(exc))
        return {"failure": self.failure}

    def annotate(self, graph: RuntimeGraph, specs: Sequence[TensorSpec] | None, description: dict[str, Any]) -> None:
        """Add to a graph's description how it runs: which kernel computes each operator, or why none does.

        Args:
            specs: of the inputs; None where they are open: then the kernels are those of the shapes that ran last.
        """
        if specs is not None:
            self.prepare(graph, specs)
        if self.failure is not None:
            description["compiler"] = {"failure": self.failure}
        elif specs is None:
            self._annotate_latest(graph, description)
        else:
            compiled = self._compiled(graph)
            description["compiler"] = compiled.annotate(compiled.program(specs), description["operators"])

    def _annotate_latest(self, graph: RuntimeGraph, description: dict[str, Any]) -> None:
        with self._lock:
            compiled = self._graphs[id(graph)][1] if id(graph) in self._graphs else None
        found = None if compiled is None else compiled.latest()
        if compiled is None or found is None:
            for row in description["operators"]:
                if "kernel" in row:
                    row["kernel"] = None
            return
        shapes, program = found
        description["compiler"] = {"shapes": shapes, **compiled.annotate(program, description["operators"])}

    def _compiled(self, graph: RuntimeGraph) -> CompiledGraph:
        with self._lock:
            if id(graph) not in self._graphs:
                self._graphs[id(graph)] = graph, _compile(graph, self._options)
            return self._graphs[id(graph)][1]

    def _fall_back(self, error: CompileError) -> None:
        if self._must_compile:
            raise error
        with self._lock:
            if self.failure is None:
                _log.warning("the graph is not compiled and runs on the reference layers: %s", error)
            self.failure = str(error)


def measure_peak(seconds: float = 0.2) -> float:
    """What one core can do at most: floating-point operations a second of fused multiply-adds on registers, measured.

    Args:
        seconds: how long to measure.

    Raises:
        CompileError: there is no compiler, or none for this processor.
    """
    try:
        from engine.compiler.codegen import peak
    except ImportError as exc:
        raise _no_compiler(exc) from exc
    return peak.measure_peak(seconds)


def _defect(exc: Exception) -> CompileError:
    """Whatever went wrong while compiling costs speed, not the answer."""
    error = CompileError("the compiler failed", found=f"{type(exc).__name__}: {exc}")
    error.__cause__ = exc
    return error


def _no_compiler(exc: ImportError) -> CompileError:
    return CompileError("llvmlite cannot be imported, so there is no compiler", found=str(exc))


def _compile(graph: RuntimeGraph, options: Options) -> CompiledGraph:
    try:
        from engine.compiler import CompiledGraph
    except ImportError as exc:
        raise _no_compiler(exc) from exc
    return CompiledGraph(graph, options)


def _profile(
    compiled: CompiledGraph,
    instance: Instance,
    inputs: Sequence[Array],
    cancelled: Callable[[], bool] | None,
    runs: list[MeasuredRun],
) -> list[Array]:
    outputs, report = compiled.profile(inputs, cancelled, instance)
    runs.append(MeasuredRun(rows=report.rows, kernels=report.describe(), peak_bytes=report.peak_bytes))
    return outputs


def _run_reference(
    graph: RuntimeGraph,
    inputs: Sequence[Array],
    cancelled: Callable[[], bool] | None,
    runs: list[MeasuredRun] | None,
) -> list[Array]:
    if runs is None and cancelled is None:
        return execute(graph.plan, inputs)
    watch = Watch(graph.plan, cancelled=cancelled, measured=runs is not None)
    outputs = execute(graph.plan, inputs, watch)
    if runs is not None:
        runs.append(MeasuredRun(rows=rows_of(watch), kernels=[], peak_bytes=watch.peak_bytes))
    return outputs


def rows_of(watch: Watch) -> list[dict[str, Any]]:
    """The steps of a watched run of the reference with their times."""
    return [
        {"index": op.index, "name": op.name, "type": op.type, "kernel": "reference", "time_us": spent / 1e3}
        for op, spent in zip((step.operator for step in watch.plan.steps), watch.times_ns, strict=True)
    ]


def join_kernels(runs: Sequence[MeasuredRun]) -> list[dict[str, Any]]:
    """The kernels of the parts of a split batch as one list: what they took and did adds up."""
    if len({len(run.kernels) for run in runs}) != 1:
        return [kernel for run in runs for kernel in run.kernels]
    return [_sum_of(parts) for parts in zip(*(run.kernels for run in runs), strict=True)]


def _sum_of(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    total = dict(parts[0])
    for name in ("time_us", "flops", "bytes"):
        total[name] = sum(part[name] for part in parts)
    if total["time_us"] > 0:
        total |= {
            "gflops": total["flops"] / total["time_us"] / 1e3,
            "bytes_per_s": total["bytes"] / total["time_us"] * 1e6,
        }
    return total


def join_rows(runs: Sequence[MeasuredRun]) -> list[dict[str, Any]]:
    """The rows of the parts of a split batch as one table: times add up."""
    if len(runs) == 1:
        return runs[0].rows
    return [
        {**rows[0], "time_us": sum(row["time_us"] for row in rows)}
        for rows in zip(*(run.rows for run in runs), strict=True)
    ]
