"""Graphs that run as machine code: one program for every set of input shapes."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from engine.cancellation import Progress, silent
from engine.compiler.builder import Builder
from engine.compiler.codegen.host import Host
from engine.compiler.executable import Executable, NativeStep
from engine.compiler.runtime.batch_split import BatchPolicy, Gather, ParallelParts
from engine.compiler.runtime.instance import AnyInstance, NotFiniteError
from engine.compiler.runtime.instances import Instances, TooLargeError
from engine.compiler.runtime.program import Program
from engine.compiler.runtime.report import Clocked, report_run
from engine.compiler.subgraphs import CompileSubgraph
from engine.defects import Defects
from engine.errors import CompileError, EngineError
from engine.graph import RuntimeGraph
from engine.graph.batch.batch_axes import Axes
from engine.graph.building.inference import UnforeseenResultError
from engine.graph.port import static_specs
from engine.graph.running.reference import as_outputs
from engine.graph.typical_sizes import LENGTHS, typical_specs
from engine.memory.resources import available_cores
from engine.options import Options
from engine.passes.decomposition import origin
from engine.profiling import MeasuredRun
from engine.tensor import Array, Shaped, TensorSpec, specs_of

# Operators of a graph that takes long to compile: LLVM needs about 20 ms for each distinct one.
MANY_OPERATORS: Final = 24


class CompiledGraph:
    """Graph that runs as machine code; many threads may call it at once.

    Args:
        host: the processor to generate for; None for this one.
        compiles: makes a subgraph ready to run; None for the reference.
        defects: receives defects of the compiler; None for a log of its own.

    Attributes:
        builder: builds its programs.
        instances: its instances, by the shapes of their inputs.

    Raises:
        CompileError: this processor is not supported.
    """

    def __init__(
        self,
        graph: RuntimeGraph,
        options: Options,
        host: Host | None = None,
        compiles: CompileSubgraph | None = None,
        defects: Defects | None = None,
    ) -> None:
        self._defects = Defects(are_errors=options.must_compile) if defects is None else defects
        self.threads = options.threads or available_cores()
        self._graph = graph
        self.builder = Builder(graph, options, host, compiles)
        own, limit = static_specs(graph.inputs), options.instances_max_bytes
        self._own = None if own is None else list(own)
        self._cores = min(self.threads, available_cores())
        self.instances = Instances(
            self._make_in_background,
            self.threads,
            limit,
            own,
            must=options.must_compile,
            make_now=self._make_now,
            is_dynamic=self.builder.is_dynamic,
            release=self.builder.release_template,
        )
        self._lock = threading.Lock()
        self._options, self._compiles = options, compiles
        self._exact: CompiledGraph | None = None
        self._parallel: ParallelParts | None = None

    def run(
        self,
        inputs: Sequence[Array],
        instance: AnyInstance | None = None,
        runs: list[MeasuredRun] | None = None,
        *,
        waits: bool = True,
    ) -> list[Array]:
        """Return the graph's outputs, flattened; compile first if these shapes are new.

        Args:
            instance: the instance for these shapes, if the caller has it.
            runs: receives the measured time of every kernel; None to measure nothing.
            waits: whether to compile code without Winograd's algorithm now where the algorithm is not valid.

        Raises:
            CompileError: generated code is not valid, or reports a fault that it cannot have; or it is being compiled
                without Winograd's algorithm.
            RunCancelledError: the caller cancelled.
            EngineError: an operator refuses its operands or fails; names the operator.
        """
        instance = instance or self.instance_soon(inputs) or self.make(inputs)
        times: list[Clocked] | None = None if runs is None else []
        try:
            outputs = instance.run(inputs, times)
        except NotFiniteError:
            if self._options.winograd == "off":
                raise CompileError(
                    "compiled code reports void results, although it does not use Winograd's algorithm"
                ) from None
            exact = self._without_winograd()
            found = exact.instances.find(inputs)
            if found is not None or waits:
                return exact.run(inputs, found, runs)
            exact.instances.begin(specs_of(inputs))
            raise CompileError("code without Winograd's algorithm is being compiled") from None
        if runs is not None and times is not None:
            runs.append(report_run(instance.program.executable, self._graph, times))
        return outputs if instance.program.makes_all_outputs else as_outputs(outputs)

    def make(self, inputs: Sequence[Array]) -> AnyInstance:
        """Compile for inputs of these shapes.

        Raises:
            CompileError: generated code is not valid, the compiler failed, or there is no room for the program.
            EngineError: an operator does not accept these shapes.
        """
        with self._defects.collecting(self._graph):
            return self.instances.get(specs_of(inputs))

    def run_parts(self, parts: Sequence[Sequence[Array]], axes: Axes) -> list[Array] | None:
        """Return the outputs of a batch that runs in parts; None if there is no code, or it does not apply.

        As many parts as threads share evenly run in parallel, one thread each, if that is faster. The rest run one
        after the other.

        Args:
            parts: inputs of each; all of the same shapes.
            axes: batch axis of each output.

        Raises:
            CompileError: there is not enough memory.
            RunCancelledError: the caller cancelled.
            EngineError: an operator refuses its operands or fails; names the operator.
        """
        instance = self.instances.find(parts[0])
        if instance is None:
            return None
        count = len(parts)
        whole = Gather(instance.program, count, axes)
        parallel = self._batch_policy(instance.program).parallel_count(count)
        try:
            answers = self._parallel_parts(instance.program).run(parts[:parallel], whole) if parallel else []
            answers += [instance.run(parts[number], into=whole.part(number)) for number in range(parallel, count)]
        except (NotFiniteError, UnforeseenResultError):
            return None
        return whole.join([as_outputs(answer) for answer in answers])

    def _parallel_parts(self, program: Program) -> ParallelParts:
        with self._lock:
            if self._parallel is None or self._parallel.program is not program:
                self._parallel = ParallelParts(program, self._cores)
            return self._parallel

    def instance_soon(self, inputs: Shaped) -> AnyInstance | None:
        """Return the instance for inputs of these shapes if there is one or a template is valid for them, else None."""
        try:
            with self._defects.collecting(self._graph):
                return self.instances.get_soon(inputs, self.builder.bound_program)
        except EngineError:
            return None

    def program_soon(self, inputs: Shaped) -> Program | None:
        """Return the program for inputs of these shapes if there is one, or a template is valid for them."""
        try:
            return self.instances.program_soon(inputs, self.builder.bound_program)
        except EngineError:
            return None

    def is_ready(self, inputs: Shaped) -> bool:
        """Return whether there is a program for inputs of these shapes."""
        return self.instances.program(inputs) is not None or self.builder.has_template(inputs)

    def takes_long(self, specs: Sequence[TensorSpec]) -> bool:
        """Return whether making the instance would delay a first answer: much has to be compiled."""
        return len(self._graph.operators) >= MANY_OPERATORS and not self.builder.is_kept(specs)

    def begin(self, specs: Sequence[TensorSpec]) -> None:
        """Compile an instance for these shapes in the background if they recur.

        The shapes of the file are compiled at once, and so are shapes whose program will be a template that is valid
        for others. While one template is compiled, further shapes are only counted: the template may be valid for them.
        """
        if self.builder.has_gap(specs):
            return
        is_urgent = self.builder.makes_templates and not self.instances.is_making
        self.instances.begin(specs, is_urgent=is_urgent or list(specs) == self._own)

    def _make_in_background(self, specs: Sequence[TensorSpec], *, progress: Progress = silent) -> Program:
        with self._defects.collecting(self._graph):
            return self.builder.program(specs, progress=progress)

    def _make_now(self, specs: Sequence[TensorSpec], *, progress: Progress = silent) -> Program:
        """Return the program that a run waits for."""
        return self.builder.program(specs, progress=progress, cores=self._cores)

    def _without_winograd(self) -> CompiledGraph:
        """Return the same graph without Winograd's algorithm: infinities and NaN stay where PyTorch has them."""
        with self._lock:
            if self._exact is None:
                options = replace(self._options, winograd="off")
                self._exact = CompiledGraph(self._graph, options, self.builder.host, self._compiles, self._defects)
            return self._exact

    def prepare_dynamic(self, batch: int, progress: Progress) -> dict[str, Any]:
        """Load the templates that an earlier process has stored; compile those for typical sizes that are missing.

        Args:
            batch: size of a dynamic first dimension.

        Raises:
            RunCancelledError, CompileError: as ``prepare`` says.
        """
        with self._defects.collecting(self._graph):
            self.builder.restore_templates()
        found: dict[str, Any] = {}
        for length in LENGTHS:
            specs = typical_specs(self._graph, batch, length)
            if specs is not None and (self.builder.has_template(specs) or self.builder.makes_templates):
                with suppress(TooLargeError):  # smaller sizes may fit
                    found = self.prepare(specs, progress=progress)
        return found

    def prepare(
        self,
        specs: Sequence[TensorSpec],
        *,
        refresh: bool = False,
        progress: Progress = silent,
    ) -> dict[str, Any]:
        """Compile the program for inputs of these shapes unless it exists; describe it as plain data.

        Args:
            refresh: compile even if the program exists, here or in the cache.
            progress: receives the progress.

        Raises:
            RunCancelledError: the caller cancelled.
            CompileError: generated code is not valid.
            EngineError: an operator does not accept these shapes.
        """
        make = partial(self.builder.program, refresh=refresh, progress=progress, cores=self._cores)
        with self._defects.collecting(self._graph):
            program = self.instances.prepare(specs, make, refresh=refresh)
            self.builder.prepare_subgraphs(program, specs)
        return describe(program)

    def close(self) -> None:
        """Release the memory and the threads of all instances; a later run makes new ones."""
        self.instances.close()
        self.builder.subgraphs.close()
        with self._lock:
            exact, self._parallel = self._exact, None
        if exact is not None:
            exact.close()

    def prefers_parts(self, specs: Sequence[TensorSpec], parts: int) -> bool:
        """Return whether parts of these shapes are faster than one batch; False without a program."""
        program = self.instances.program(specs)
        return program is not None and self._batch_policy(program).is_better(parts)

    def _batch_policy(self, program: Program) -> BatchPolicy:
        return BatchPolicy(program.executable, self.builder.host, self._cores, self.instances.limit)

    def annotate(
        self, specs: Sequence[TensorSpec] | None, operators: Sequence[dict[str, Any]]
    ) -> dict[str, Any] | None:
        """Write the kernel of every operator into its description; describe the program as plain data.

        Args:
            specs: of the inputs; None for the program used last, whose shapes are then described too.

        Returns:
            None if there is no such program; then nothing is written.
        """
        shapes, program = self.instances.latest() if specs is None else (None, self.instances.program(specs))
        if program is None:
            return None
        executable = program.executable
        steps = [(step, [*map(origin, step.operators)]) for step in executable.steps]
        reasons = {origin(name): reason for name, reason in executable.reasons.items()}
        for row in operators:
            if "kernel" in row:
                row |= _kernel(row["name"], executable, steps, reasons)
        self.builder.subgraphs.annotate_stages(operators)
        return {
            **({} if shapes is None else {"shapes": shapes}),
            "host": self.builder.host.name,
            "threads": self.threads,
            "passes": [each.describe() for each in executable.passes],
            **describe(program),
        }


def describe(program: Program) -> dict[str, Any]:
    """Describe a program and its origin as plain data."""
    executable, origin = program.executable, program.origin
    return {
        "kernels": len(executable.steps),
        "fallbacks": len(executable.calls),
        "arena_bytes": executable.arena_bytes,
        "constant_bytes": executable.constant_bytes,
        "is_cached": origin.is_cached,
        "entry_bytes": origin.entry_bytes,
        "compile_ms": origin.time_s * 1e3,
    }


def _kernel(
    name: str, plan: Executable, kernels: Sequence[tuple[NativeStep, list[str]]], reasons: Mapping[str, str]
) -> dict[str, Any]:
    """Return the kernel that computes an operator, or why there is none."""
    if name in reasons:
        return {"kernel": "reference", "why": reasons[name]}
    steps = [(step, names) for step, names in kernels if name in names]
    led = [step for step, names in steps if name == names[0]]
    if led:
        # It may have copies before and after it.
        return {"kernel": max(reversed(led), key=lambda step: step.flops).kind}
    if steps:
        return {"kernel": "fused", "fused_into": steps[-1][1][0]}
    return {"kernel": "view"} if name in plan.operators else {"kernel": "removed"}
