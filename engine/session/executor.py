"""What a session runs its graphs with: machine code, and the reference where there is none.

The compiler is imported only when something is compiled: without llvmlite the engine still runs, on the reference.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from engine.bundle import Bundle
from engine.errors import CompileError, EngineError, RunCancelledError
from engine.graph import RuntimeGraph, execute
from engine.graph.batch.batching import Cut, join
from engine.graph.building.inference import UnforeseenResultError
from engine.graph.running.watch import Watch
from engine.options import Options
from engine.profiling import MeasuredRun, measured
from engine.progress import Progress, silent
from engine.session.bodies import CompiledBody
from engine.stopping import cancelling, check_wanted
from engine.tensor import Array, TensorSpec
from engine.toolchain import has_llvm, no_compiler

if TYPE_CHECKING:
    from engine.compiler import CompiledGraph
    from engine.compiler.again import Again

# Making a program may take so many times as long as the reference took for its last answer.
_PATIENCE: Final = 2.0

_log = logging.getLogger("pnnx_serve.engine")


class Executor:
    """Runs a session's graphs; many threads may call it at once.

    Args:
        is_inner: for a body inside of a graph, whose way is nobody's concern.

    Attributes:
        failure: why the reference runs graphs that should be compiled; None while nothing has failed.
    """

    def __init__(self, options: Options, *, is_inner: bool = False) -> None:
        self._options = options
        self._level = logging.DEBUG if is_inner else logging.WARNING
        self._graphs: dict[int, tuple[RuntimeGraph, CompiledGraph]] = {}
        self._meanwhile_s: dict[int, float] = {}
        self._lock = threading.Lock()
        self.failure: str | None = None
        self._gap: str | None = None

    @property
    def compiles(self) -> bool:
        """Whether graphs run as machine code, as far as is known."""
        return self._options.backend != "reference" and self.failure is None

    def run(self, graph: RuntimeGraph, inputs: Sequence[Array], runs: list[MeasuredRun] | None) -> list[Array]:
        """The outputs of a graph.

        Args:
            runs: receives what the run took; None where it is not measured.

        Raises:
            CompileError: it must be compiled and cannot.
            EngineError: an operator refuses or fails.
        """
        must_compile, reference = self._options.must_compile, partial(_run_reference, graph, inputs, runs)
        if self.compiles:
            try:
                compiled = self._compiled(graph)
                specs = [TensorSpec(array.shape, array.dtype) for array in inputs]
                instance = compiled.instances.find(specs)
                if instance is None and self._is_gap(compiled, specs):
                    return reference()
                if instance is None and runs is None and self._may_wait(graph, specs, compiled):
                    patience_s = self._patience_s(graph)
                    instance = compiled.instance_soon(specs, patience_s)
                    if instance is None and (compiled.begin(specs, patience_s) or not _is_own(graph, specs)):
                        outputs = self._answer_meanwhile(graph, inputs, compiled, specs)
                        if outputs is not None:
                            return outputs
                instance = instance or compiled.instances.get(specs)
            except CompileError as error:
                # There are no kernels for nothing; what comes next may have elements.
                if all(array.size for array in inputs):
                    self._fall_back(error, graph)
            except EngineError:
                if must_compile:
                    raise
                return reference()  # refuses as well, or answers
            except Exception as exc:
                self._fall_back(_defect(exc), graph)
            else:
                otherwise = None if must_compile or runs is not None else reference
                try:
                    return compiled.run(inputs, instance, otherwise, runs)
                except UnforeseenResultError:  # the file's shapes are those of one run; here they are others
                    return reference()
                except CompileError:  # code without Winograd's algorithm, which a bundle has not
                    if must_compile:
                        raise
                    return reference()
        return reference()

    def run_parts(self, cut: Cut, runs: list[MeasuredRun] | None) -> list[Array]:
        """The outputs of a graph, joined where it runs in parts.

        Args:
            runs: receives what each part took, one after the other; None where it is not measured.

        Raises:
            EngineError: as ``run``; or the outputs of the parts do not fit together.
        """
        if len(cut.parts) == 1:
            return self.run(cut.graph, cut.parts[0], runs)
        found = self._find(cut.graph) if runs is None else None
        try:
            outputs = None if found is None else found.run_parts(cut.parts, cut.axes)
        except CompileError:  # no memory for several at once
            outputs = None
        return outputs or join([self.run(cut.graph, part, runs) for part in cut.parts], cut.axes)

    def _answer_meanwhile(
        self, graph: RuntimeGraph, inputs: Sequence[Array], compiled: CompiledGraph, specs: Sequence[TensorSpec]
    ) -> list[Array] | None:
        """The reference's outputs, while there is no machine code; None where there is some before it has answered."""
        start = time.perf_counter()
        try:
            with cancelling(lambda: compiled.instances.program(specs) is not None):
                outputs = execute(graph.plan, inputs)
        except RunCancelledError:
            check_wanted()  # whoever asks for it may have cancelled it as well
            return None
        self._meanwhile_s[id(graph)] = time.perf_counter() - start
        return outputs

    def _patience_s(self, graph: RuntimeGraph) -> float:
        """What an answer may wait for a program, which later ones have as well: a little longer than the reference."""
        return _PATIENCE * self._meanwhile_s.get(id(graph), math.inf)

    def _may_wait(self, graph: RuntimeGraph, specs: Sequence[TensorSpec], compiled: CompiledGraph) -> bool:
        """Whether the reference should answer where there is no machine code for these shapes.

        Not for the shapes of the file: they are compiled when the graph first runs; where there is much to compile that
        is done behind the first answer, and whoever asks for a second one waits for it. Nor where a bundle has code.
        """
        if self._options.must_compile:
            return False
        if _is_own(graph, specs):
            return id(graph) not in self._meanwhile_s and compiled.takes_long(specs)
        return not compiled.builder.carries(specs)

    def _is_gap(self, compiled: CompiledGraph, specs: Sequence[TensorSpec]) -> bool:
        """Whether a bundle has no code for these shapes, and nothing else can make it.

        Raises:
            CompileError: it must be compiled.
        """
        if compiled.builder.carried is None or compiled.builder.carries(specs):
            return False
        if self._gap is None and not has_llvm():
            self._gap = "the bundle has no program for these shapes, and llvmlite is not installed"
        if self._gap is not None and self._options.must_compile:
            raise CompileError(self._gap, found=" and ".join(map(str, specs)))
        return self._gap is not None

    def carries(self, graph: RuntimeGraph, specs: Sequence[TensorSpec]) -> bool:
        """Whether the bundle a graph came from has code for these shapes."""
        return graph.bundle is not None and self.compiles and self._compiled(graph).builder.carries(specs)

    def prepare(
        self,
        graph: RuntimeGraph,
        specs: Sequence[TensorSpec],
        *,
        refresh: bool = False,
        tune: bool = False,
        progress: Progress = silent,
    ) -> dict[str, Any]:
        """Compile a graph for inputs of these shapes ahead of its first run.

        Args:
            refresh: compile even what was compiled before.
            tune: the same, with kernels measured against each other.

        Returns:
            What was made, as plain data; only ``failure`` where nothing was.

        Raises:
            CompileError: it must be compiled and cannot.
            RunCancelledError: nobody wants it any more.
        """
        if self.compiles:
            try:
                compiled = self._compiled(graph)
                if not self._is_gap(compiled, specs):
                    return compiled.prepare(specs, refresh=refresh, tune=tune, progress=progress)
            except CompileError as error:
                self._fall_back(error, graph)
            except EngineError:
                raise
            except Exception as exc:
                self._fall_back(_defect(exc), graph)
        return {"failure": self.failure or self._gap}

    def close(self) -> None:
        """Give back the memory and the threads of what was compiled; a later run makes it anew."""
        with self._lock:
            graphs = [compiled for _, compiled in self._graphs.values()]
        for compiled in graphs:
            compiled.close()

    def wish(self, graph: RuntimeGraph, specs: Sequence[TensorSpec]) -> None:
        """These shapes were met: if that happens again, code for them is made in the background."""
        if self.compiles:
            try:
                compiled = self._compiled(graph)
                if not self._is_gap(compiled, specs):
                    compiled.begin(specs)
            except CompileError:  # the reference goes on answering
                return

    def note(self, graph: RuntimeGraph, specs: Sequence[TensorSpec], subject: str) -> bytes | None:
        """What was kept of a graph that was compiled; None if nothing was."""
        found = self._find(graph)
        return None if found is None else found.builder.note(specs, self._subject(found, subject))

    def keep(self, graph: RuntimeGraph, specs: Sequence[TensorSpec], subject: str, content: bytes) -> None:
        """Keep something of it."""
        found = self._find(graph)
        if found is not None:
            found.builder.keep(specs, self._subject(found, subject), content)

    def _subject(self, compiled: CompiledGraph, subject: str) -> str:
        return f"{subject} {compiled.threads} threads"

    def discard(self, graph: RuntimeGraph, specs: Sequence[TensorSpec]) -> None:
        """Give back what was compiled for these shapes."""
        found = self._find(graph)
        if found is not None:
            found.instances.discard(specs)

    def give_back(self, graph: RuntimeGraph) -> None:
        """Weights were read that machine code does not need: the system may have their pages, as far as it can."""
        if self.compiles:
            try:
                from engine.compiler.runtime.pages import release
            except ImportError:  # no compiler: the layers will want them again
                return
            release(graph)

    def _compiled(self, graph: RuntimeGraph) -> CompiledGraph:
        with self._lock:
            if id(graph) not in self._graphs:
                self._graphs[id(graph)] = graph, _compile(graph, self._options)
            return self._graphs[id(graph)][1]

    def _fall_back(self, error: CompileError, graph: RuntimeGraph) -> None:
        if self._options.must_compile:
            raise error
        with self._lock:
            if graph.bundle is not None:  # whose own programs go on
                if self._gap is None:
                    _log.warning("shapes that the bundle has no program for run on the reference layers: %s", error)
                self._gap = str(error)
                return
            if self.failure is None:
                _log.log(self._level, "the graph is not compiled and runs on the reference layers: %s", error)
            self.failure = str(error)

    # -- questions: they compile nothing -----------------------------------------------------------------------------

    def holds(self, graph: RuntimeGraph, specs: Sequence[TensorSpec]) -> bool:
        """Whether machine code for these shapes is there, and the memory it runs in."""
        found = self._find(graph)
        return found is not None and found.instances.program(specs) is not None

    def again(self, graph: RuntimeGraph, specs: Sequence[TensorSpec]) -> Again | None:
        """What runs inputs of these shapes where there is machine code for them; None where nothing was compiled."""
        found = self._find(graph)
        return None if found is None else found.again(specs)

    def prefers_parts(self, graph: RuntimeGraph, specs: Sequence[TensorSpec], parts: int) -> bool:
        """Whether so many runs of these shapes are faster than one of a batch; no where they are not compiled."""
        found = self._find(graph)
        return found is not None and found.prefers_parts(specs, parts)

    def annotate(self, graph: RuntimeGraph, specs: Sequence[TensorSpec] | None, description: dict[str, Any]) -> None:
        """Add to a graph's description how it runs: which kernel computes each operator, or why none does.

        Args:
            specs: of the inputs; None where they are open: then the kernels are those of the shapes that ran last.
        """
        if graph.bundle is not None:
            description["bundle"] = self._tell_bundle(graph.bundle)
        if self.failure is not None:
            description["compiler"] = {"failure": self.failure}
        elif self.compiles:
            found = self._find(graph)
            told = None if found is None else found.annotate(specs, description["operators"])
            if told is not None:
                description["compiler"] = told
                return
            for row in description["operators"]:
                if "kernel" in row:
                    row["kernel"] = None

    def _tell_bundle(self, bundle: Bundle) -> dict[str, Any]:
        """What was compiled ahead of time, and what becomes of other shapes."""
        manifest = bundle.manifest
        told = {
            "engine": manifest.engine,
            "host": manifest.host.describe(),
            "programs": [[list(shape) for shape, _ in each.inputs] for each in manifest.programs],
        }
        if not self.compiles:
            return {**told, "other_shapes": "reference"}
        gap = self._gap or (None if has_llvm() else "llvmlite is not installed")
        if gap is None or self._options.must_compile:
            return {**told, "other_shapes": "compiled" if gap is None else "refused"}
        return {**told, "other_shapes": "reference", "why": gap}

    def _find(self, graph: RuntimeGraph) -> CompiledGraph | None:
        """What was compiled of a graph, where that is what runs it."""
        with self._lock:
            return self._graphs[id(graph)][1] if self.compiles and id(graph) in self._graphs else None


def _is_own(graph: RuntimeGraph, specs: Sequence[TensorSpec]) -> bool:
    return [port.spec for port in graph.inputs] == list(specs)


def _defect(exc: Exception) -> CompileError:
    """Whatever went wrong while compiling costs speed, not the answer."""
    error = CompileError("the compiler failed", found=f"{type(exc).__name__}: {exc}")
    error.__cause__ = exc
    return error


def _compile(graph: RuntimeGraph, options: Options) -> CompiledGraph:
    try:
        from engine.compiler import CompiledGraph
    except ImportError as exc:
        raise no_compiler(exc) from exc
    return CompiledGraph(graph, options, compiles=lambda body: CompiledBody(body, Executor(options, is_inner=True)))


def _run_reference(graph: RuntimeGraph, inputs: Sequence[Array], runs: list[MeasuredRun] | None) -> list[Array]:
    if runs is None:
        return execute(graph.plan, inputs)
    watch = Watch(graph.plan)
    outputs = execute(graph.plan, inputs, watch)
    runs.append(measured(watch))
    return outputs
