"""Execution of a session's graphs by its policy, and answers to questions about their compiled programs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from engine.bundle import Bundle
from engine.cancellation import Progress, silent
from engine.defects import Defects
from engine.errors import CompileError
from engine.graph import RuntimeGraph
from engine.graph.batch.batching import Cut, join
from engine.options import Options
from engine.profiling import MeasuredRun
from engine.session.policies import CompiledGraphs, CompiledOnly, Policy, Race, ReferenceOnly
from engine.session.subgraphs import CompiledSubgraph
from engine.tensor import Array, TensorSpec

if TYPE_CHECKING:
    from engine.compiler import CompiledGraph
    from engine.compiler.runtime.instance import AnyInstance
    from engine.compiler.runtime.program import Program


class Executor:
    """Runner of a session's graphs; many threads may call it at once.

    Args:
        is_inner: for a subgraph of a graph, whose failures are logged at DEBUG.
        defects: receives defects of the compiler; None for a log of its own.

    Attributes:
        defects: defects that the compiler had with these graphs.
    """

    def __init__(self, options: Options, *, is_inner: bool = False, defects: Defects | None = None) -> None:
        self._options = options
        self.defects = Defects(are_errors=options.must_compile) if defects is None else defects
        self._graphs = CompiledGraphs(
            options,
            self.defects,
            lambda subgraph: CompiledSubgraph(subgraph, Executor(options, is_inner=True, defects=self.defects)),
        )
        self._policy: Policy
        if options.backend == "reference":
            self._policy = ReferenceOnly()
        elif options.must_compile:
            self._policy = CompiledOnly(self._graphs)
        else:
            self._policy = Race(self._graphs, logging.DEBUG if is_inner else logging.WARNING)
        self.run = self._policy.run

    @property
    def failure(self) -> str | None:
        """Reason why the reference runs graphs that should be compiled; None while nothing has failed."""
        return self._policy.failure

    @property
    def compiles(self) -> bool:
        """Return whether graphs run as machine code, as far as is known."""
        return self._options.backend != "reference" and self._policy.failure is None

    def run_parts(self, cut: Cut, runs: list[MeasuredRun] | None) -> list[Array]:
        """Return the outputs of a graph, joined where it runs in parts.

        Args:
            runs: receives the measurements of each part in order; None for no measurement.

        Raises:
            EngineError: as ``Policy.run``; or the outputs of the parts do not fit together.
        """
        if len(cut.parts) == 1:
            return self.run(cut.graph, cut.parts[0], runs)
        found = self.find(cut.graph) if runs is None else None
        try:
            outputs = None if found is None else found.run_parts(cut.parts, cut.axes)
        except CompileError:  # no memory for several at once
            outputs = None
        return outputs or join([self.run(cut.graph, part, runs) for part in cut.parts], cut.axes)

    def prepare(
        self,
        graph: RuntimeGraph,
        specs: Sequence[TensorSpec],
        *,
        refresh: bool = False,
        progress: Progress = silent,
    ) -> dict[str, Any]:
        """Compile a graph for inputs of these shapes ahead of its first run.

        Args:
            refresh: compile again what was compiled before.

        Returns:
            What was made, as plain data; only ``failure`` where nothing was.

        Raises:
            CompileError: it must be compiled and cannot.
            RunCancelledError: the run was cancelled.
        """
        return self._policy.prepare(graph, lambda compiled: compiled.prepare(specs, refresh=refresh, progress=progress))

    def prepare_dynamic(self, graph: RuntimeGraph, batch: int = 1, progress: Progress = silent) -> None:
        """Load the code for dynamic sizes that an earlier process has stored, or compile it.

        Args:
            batch: size of a dynamic first dimension.

        Raises:
            CompileError: it must be compiled and cannot.
            RunCancelledError: the run was cancelled.
        """
        self._policy.prepare(graph, lambda compiled: compiled.prepare_dynamic(batch, progress))

    def request(self, graph: RuntimeGraph, specs: Sequence[TensorSpec]) -> None:
        """Count an occurrence of these shapes: if they come again, they are compiled in the background."""
        with suppress(CompileError):  # the reference continues to answer
            if self.compiles:
                self._graphs.of(graph).begin(specs)

    def close(self) -> None:
        """Release the memory and threads of compiled programs; a later run creates them again."""
        for compiled in self._graphs.all():
            compiled.close()

    # -- queries, which compile nothing ------------------------------------------------------------------------------

    def carries(self, graph: RuntimeGraph, specs: Sequence[TensorSpec]) -> bool:
        """Return whether the bundle a graph came from has code for these shapes."""
        return graph.bundle is not None and self.compiles and self._graphs.of(graph).builder.carries(specs)

    def find(self, graph: RuntimeGraph) -> CompiledGraph | None:
        """Return the compiled form of a graph, if machine code runs it."""
        return self._graphs.find(graph) if self.compiles else None

    @property
    def compiled_bytes(self) -> int:
        """Memory of compiled programs: code, packed weights, arenas."""
        return sum(compiled.instances.bytes for compiled in self._graphs.all())

    def instance(self, graph: RuntimeGraph, inputs: Sequence[Array]) -> AnyInstance | None:
        """Return the machine code for inputs of these shapes, if it is ready."""
        found = self.find(graph)
        return None if found is None else found.instances.find(inputs)

    def holds(self, graph: RuntimeGraph, specs: Sequence[TensorSpec]) -> bool:
        """Return whether machine code for these shapes and its memory are ready."""
        found = self.find(graph)
        return found is not None and found.instances.program(specs) is not None

    def program(self, graph: RuntimeGraph, specs: Sequence[TensorSpec]) -> Program | None:
        """Return the program that would run inputs of these shapes, if one is ready or a template is valid for them."""
        found = self.find(graph)
        return None if found is None else found.program_soon(specs)

    def run_bytes(self, graph: RuntimeGraph, specs: Sequence[TensorSpec]) -> int | None:
        """Return the bytes that a run of these shapes allocates; None if no program is ready, see ``program``."""
        found = self.find(graph)
        program = None if found is None else found.program_soon(specs)
        return None if found is None or program is None else program.output_bytes + found.instances.new_bytes(program)

    def prefers_parts(self, graph: RuntimeGraph, specs: Sequence[TensorSpec], parts: int) -> bool:
        """Return whether so many runs of these shapes are faster than one of a batch; false if not compiled."""
        found = self.find(graph)
        return found is not None and found.prefers_parts(specs, parts)

    def annotate(self, graph: RuntimeGraph, specs: Sequence[TensorSpec] | None, description: dict[str, Any]) -> None:
        """Add to a graph's description how it runs: which kernel computes each operator, or why none does.

        Args:
            specs: of the inputs; None where they are dynamic, for the kernels of the shapes that ran last.
        """
        if graph.bundle is not None:
            description["bundle"] = self._describe_bundle(graph, graph.bundle)
        if self.failure is not None:
            description["compiler"] = {"failure": self.failure}
        elif self.compiles:
            found = self.find(graph)
            compiler = None if found is None else found.annotate(specs, description["operators"])
            if compiler is not None:
                description["compiler"] = compiler
                return
            for row in description["operators"]:
                if "kernel" in row:
                    row["kernel"] = None

    def _describe_bundle(self, graph: RuntimeGraph, bundle: Bundle) -> dict[str, Any]:
        """Return the programs of the bundle, and how other shapes run, as plain data."""
        manifest = bundle.manifest
        described = {
            "engine": manifest.engine,
            "host": manifest.host.describe(),
            "programs": [[list(shape) for shape, _ in each.inputs] for each in manifest.programs],
        }
        if not self.compiles:
            return {**described, "other_shapes": "reference"}
        gap = self._graphs.of(graph).builder.gap
        if gap is None or self._options.must_compile:
            return {**described, "other_shapes": "compiled" if gap is None else "refused"}
        return {**described, "other_shapes": "reference", "why": gap}
