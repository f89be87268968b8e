"""Programs of one graph: from the cache if it has them, otherwise compiled."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from engine.cancellation import Progress, cancellable_progress, silent
from engine.compile_metrics import METER
from engine.compiler.bundling.programs import BundledPrograms
from engine.compiler.cache.cache import Cache
from engine.compiler.cache.fingerprint import graph_digest, program_key
from engine.compiler.cache.version import is_unchanged
from engine.compiler.codegen import object_code
from engine.compiler.codegen.host import Host
from engine.compiler.dynamic.serialization import content_of, templates_of
from engine.compiler.dynamic.template import GraphParts, Loaded, Template, Templates
from engine.compiler.executable import Executable
from engine.compiler.measuring.record import this_host
from engine.compiler.pipeline import CompilePipeline
from engine.compiler.plan_check import check_plan
from engine.compiler.runtime.memory import release
from engine.compiler.runtime.program import ConstantValues, Origin, Program
from engine.compiler.subgraphs import CompileSubgraph, Subgraphs, subgraphs_of
from engine.compiler.weights import with_own_weights
from engine.defects import report_defect
from engine.errors import CompileError, EngineError, RunCancelledError
from engine.graph import RuntimeGraph, RuntimeOperator
from engine.graph.feedback import whole_inputs
from engine.graph.port import Port
from engine.memory.blocks import is_mapped, move_to_disk
from engine.memory.shared_blocks import shared
from engine.options import Options
from engine.tensor import Array, Shaped, TensorSpec, specs_of

# Programs of a dynamic graph that are stored in the cache, each with all weights.
MAX_KEPT = 8


class Builder:
    """Builder of the programs of a graph; one at a time.

    Args:
        host: the processor to generate for; None for this one.
        compiles: makes a subgraph ready to run; None for the reference.

    Attributes:
        host: the processor that programs are for: a bundle's, until others are compiled.
        is_dynamic: whether inputs come in many shapes, so that programs share code and weights.
        subgraphs: the subgraphs of its operators.
        carried: the programs of the graph's bundle; None where it has none.
        gap: why shapes that a bundle has no program for cannot be compiled; None where they can.

    Raises:
        CompileError: this processor is not supported.
    """

    def __init__(
        self, graph: RuntimeGraph, options: Options, host: Host | None = None, compiles: CompileSubgraph | None = None
    ) -> None:
        self.carried = None if graph.bundle is None else BundledPrograms(graph, graph.bundle, options)
        self.gap: str | None = None
        self._own = host or this_host(options)
        self.host = self.carried.host if self.carried and host is None else self._own
        self._graph = graph
        self._states = frozenset(each.input for each in graph.feedback if each.axis is not None)
        self._pipeline = CompilePipeline(graph, options)
        self.is_dynamic = self._pipeline.is_dynamic
        self.subgraphs = Subgraphs(compiles)
        self._options = options
        self._cache = Cache(folder=options.cache, max_bytes=options.cache_max_bytes) if options.cache else None
        self._templates = Templates()
        self._is_looked_up = False
        self._looking_up = threading.Lock()
        self._templates_bytes = 0
        self._digest: bytes | None = None
        self._kept = 0

    def program(
        self,
        specs: Sequence[TensorSpec],
        *,
        refresh: bool = False,
        progress: Progress = silent,
        cores: int = 0,
    ) -> Program:
        """Return the program for inputs of these shapes.

        Args:
            refresh: compile even if the cache or a bundle has the program, and replace it in the cache.
            progress: receives the progress.
            cores: number of cores to use; 0 for a background compile, which uses idle time of one core.

        Raises:
            RunCancelledError: the caller cancelled; checked before every pass, operator and kernel.
            CompileError: generated code is not valid, or no operator has a kernel.
            EngineError: an operator does not accept these shapes.
        """
        start, progress = time.perf_counter(), cancellable_progress(progress)
        if not refresh and not self.carries(specs):
            program = self.bound_program(specs)
            if program is not None:
                return program
            if self.makes_templates:
                try:
                    return self._symbolic_program(specs, progress, cores)
                except CompileError:  # with fixed sizes it may be possible; other sizes than 0 with dynamic ones
                    if not any(0 in spec.shape for spec in specs):
                        self._templates.close()
        executable, is_cached, entry_bytes = self._obtain(specs, refresh, progress, cores)
        program = self._loaded(replace(executable, constants=self._placed(executable)), specs, progress)
        self._pipeline.release(needs_graph=executable.needs_graph)
        object_code.release_memory()
        time_s = time.perf_counter() - start
        METER.count_program(time_s, is_cached=is_cached)
        return replace(program, origin=Origin(is_cached=is_cached, time_s=time_s, entry_bytes=entry_bytes))

    def _symbolic_program(self, specs: Sequence[TensorSpec], progress: Progress, cores: int) -> Program:
        """Return the program of a new template, made for these shapes."""
        start = time.perf_counter()
        self.host = self._own  # not the bundle's host
        template = self._pipeline.template(specs, self.host, progress, cores)
        executable = replace(template.executable, constants=shared(template.executable.constants))
        template = replace(template, executable=executable)
        numbers = template.numbers(specs)
        if numbers is None:
            raise CompileError(
                "a program is not valid for the sizes it was compiled for", found=" and ".join(map(str, specs))
            )
        loaded = self._templates.add(template, self.host, self._parts_of(template, self._pipeline.latest))
        self._pipeline.release(needs_graph=executable.needs_graph)
        object_code.release_memory()
        self._keep_templates()
        time_s = time.perf_counter() - start
        METER.count_program(time_s, is_cached=False)
        origin = Origin(time_s=time_s, entry_bytes=self._templates_bytes)
        return replace(self._bound(loaded, numbers, specs), origin=origin)

    def _found_template(self, inputs: Shaped) -> tuple[Loaded, Array] | None:
        """Return the template that is valid for these shapes, from this or an earlier process; None without one."""
        if not self._is_looked_up:
            self.restore_templates()
        return self._templates.find(inputs)

    def restore_templates(self) -> None:
        """Load the templates that an earlier process has stored, once."""
        with self._looking_up:
            if self.is_dynamic and not self._is_looked_up:
                self._restore_templates()
                self._is_looked_up = True

    def _restore_templates(self) -> None:
        found = None if self._cache is None else self._cache.load_as(self._templates_key(), templates_of)
        if found is not None:
            templates, self._templates_bytes = found
            for each in templates:
                with suppress(EngineError):  # code that cannot be loaded, or of another graph: it is compiled again
                    self._templates.add(each, self._own, self._restored_parts(each), is_restored=True)

    def _restored_parts(self, template: Template) -> GraphParts | None:
        """Return the parts of the optimised graph that a template of an earlier process needs.

        Raises:
            CompileError: the passes leave other operators, or which ones depends on sizes.
        """
        if not template.executable.needs_graph:
            return None
        if any(op.source.subgraphs for op in self._graph.operators):
            raise CompileError("the operators that run may depend on sizes")
        specs = [each.spec for each in self._graph.inputs if each.spec is not None]
        graph = self._pipeline.optimised(specs, self._own, silent)
        if template.executable.operators != tuple(op.name for op in graph.operators):
            raise CompileError("the optimised graph has other operators than before")
        return self._parts_of(template, graph)

    def _parts_of(self, template: Template, graph: RuntimeGraph | None) -> GraphParts | None:
        """Return the parts of its graph that a template needs; None where it needs none."""
        if graph is None or not template.executable.needs_graph:
            return None
        operators = {
            op.name: self.subgraphs.compiled(op) for op in graph.operators if op.name in template.executable.calls
        }
        return GraphParts(graph, operators, self._known_for_all_sizes(graph))

    def _known_for_all_sizes(self, graph: RuntimeGraph) -> Mapping[str, object]:
        """Return the values of operands that no run and no size changes."""
        specs = [each.spec for each in graph.inputs if each.spec is not None]
        try:
            return self._pipeline.known_values(graph, specs) if len(specs) == len(graph.inputs) else {}
        except RunCancelledError:
            raise
        except EngineError:  # an operator needs to know sizes
            return {}

    def release_template(self, program: Program) -> None:
        """Forget the template of a program."""
        self._templates.remove(program.code)

    def _keep_templates(self) -> None:
        """Store all templates in the cache."""
        if self._cache is not None and is_unchanged():
            content = content_of(*(self._templates.part(is_restored=each) for each in (True, False)))
            self._templates_bytes = self._cache.save_content(self._templates_key(), content)

    def _templates_key(self) -> str:
        return self._key([each.spec for each in self._graph.inputs if each.spec is not None], "templates")

    def _bound(self, loaded: Loaded, numbers: Array, inputs: Shaped) -> Program:
        """Return the program of a template for one set of sizes."""
        if loaded.program is None:
            loaded.program = self._without_numbers(loaded)
        known: Mapping[str, object] = {}
        if loaded.parts is not None:
            compute = partial(self._pipeline.known_values, loaded.parts.graph, specs_of(inputs))
            known = ConstantValues(loaded.parts.known, compute)
        program = loaded.program.bound(numbers, known)
        if not loaded.is_checked:  # all other sizes pass the template's own checks
            self._check(program.executable, specs_of(inputs))
            loaded.is_checked = True
        return program

    def _without_numbers(self, loaded: Loaded) -> Program:
        """Return the program of a template before it has sizes."""
        parts = loaded.parts
        program = Program(
            plan=loaded.template.executable,
            code=loaded.code,
            operators={} if parts is None else parts.operators,
            known={},
            texts=_texts(self._graph.inputs if parts is None else parts.graph.inputs),
            states=self._states,
            origin=Origin(is_cached=loaded.is_restored, entry_bytes=self._templates_bytes),
        )
        _ = program.fixed_bytes, program.makes_all_outputs, program.has_calls or program.segments  # same for all sizes
        return program

    def _loaded(self, executable: Executable, specs: Sequence[TensorSpec], progress: Progress) -> Program:
        self._check(executable, specs)
        operators, known, texts = self._graph_parts(executable, specs, progress)
        code = object_code.load(executable.code, self.host)
        return Program(plan=executable, code=code, operators=operators, known=known, texts=texts, states=self._states)

    def _graph_parts(
        self, executable: Executable, specs: Sequence[TensorSpec], progress: Progress
    ) -> tuple[Mapping[str, RuntimeOperator], Mapping[str, object], list[tuple[int, str]]]:
        """Return the parts of the graph that a program needs: operators, values that no run changes, text inputs."""
        operators: Mapping[str, RuntimeOperator] = {}
        known: Mapping[str, object] = {}
        inputs = self._graph.inputs
        if executable.needs_graph:
            graph = self._pipeline.optimised(specs, self.host, progress)
            operators = {op.name: self.subgraphs.compiled(op) for op in graph.operators if op.name in executable.calls}
            known = self._pipeline.known_values(graph, specs)
            inputs = graph.inputs
        return operators, known, _texts(inputs)

    def prepare_subgraphs(self, program: Program, specs: Sequence[TensorSpec]) -> None:
        """Compile the subgraphs that operators of a program run, before their first run.

        Raises:
            RunCancelledError: the caller cancelled.
        """
        if any(map(subgraphs_of, program.operators.values())):
            graph = self._pipeline.optimised(specs, self.host, cancellable_progress(silent))
            self.subgraphs.prepare(program.operators.values(), self._pipeline.infer(graph, specs))

    def bound_program(self, inputs: Shaped) -> Program | None:
        """Return the program for inputs of these shapes if a template is valid for them; binding takes no time.

        Raises:
            CompileError: a plan does not stay inside its memory.
        """
        if not self.is_dynamic or self.carries(inputs):
            return None
        found = self._found_template(inputs)
        return None if found is None else self._bound(*found, inputs)

    def has_template(self, inputs: Shaped) -> bool:
        """Return whether a template is valid for inputs of these shapes."""
        return self.is_dynamic and self._found_template(inputs) is not None

    @property
    def makes_templates(self) -> bool:
        """Return whether a program for new shapes will be a template that is valid for others too."""
        return self.is_dynamic and self.gap is None and self._templates.has_room

    def carries(self, inputs: Shaped) -> bool:
        """Return whether the graph's bundle has a program for inputs of these shapes."""
        return self.carried is not None and self.carried.holds(specs_of(inputs))

    def has_gap(self, specs: Sequence[TensorSpec]) -> bool:
        """Return whether a bundle has no program for these shapes, and nothing else can make it."""
        return self.gap is not None and not self.carries(specs)

    def is_kept(self, specs: Sequence[TensorSpec]) -> bool:
        """Return whether the cache or a bundle has the program for inputs of these shapes."""
        if self.carries(specs) or self.has_template(specs):
            return True
        return self._cache is not None and self._cache.has(self._key(specs))

    def _placed(self, executable: Executable) -> Array:
        """Return the packed weights in their final memory: shared with other processes, or partly on disk."""
        constants = shared(executable.constants)
        if executable.tables_at is not None and not is_mapped(constants):
            move_to_disk(constants[executable.tables_at :], str(self._options.cache or ""))
        return constants

    def executable(self, specs: Sequence[TensorSpec], progress: Progress = silent, cores: int = 1) -> Executable:
        """Return the executable that ``program`` loads, from the cache if it is there.

        Raises:
            RunCancelledError, CompileError, EngineError: as ``program`` says.
        """
        return with_own_weights(self._obtain(specs, False, cancellable_progress(progress), cores)[0])

    def _obtain(
        self, specs: Sequence[TensorSpec], refresh: bool, progress: Progress, cores: int
    ) -> tuple[Executable, bool, int]:
        """Return an executable, whether it was in the cache, and its bytes there."""
        carried = None if refresh or self.carried is None else self.carried.load(specs)
        if carried is not None and self._fits(carried[0], specs, progress):
            return carried[0], True, carried[1]
        if self.gap is not None:
            raise CompileError(
                f"the bundle has no program for these shapes, and {self.gap}", found=" and ".join(map(str, specs))
            )
        self.host = self._own  # not the bundle's host
        if self._cache is None:
            return self._pipeline.compile(specs, self.host, progress, cores), False, 0
        key = self._key(specs)
        found = None if refresh else self._cache.load(key)
        if found is not None and self._fits(found.executable, specs, progress):
            return found.executable, True, found.bytes
        executable = self._pipeline.compile(specs, self.host, progress, cores)
        is_wanted = refresh or not self.is_dynamic or self._kept < MAX_KEPT
        if not is_wanted or not is_unchanged():
            return executable, False, 0
        self._kept += 1
        return executable, False, self._cache.save(key, with_own_weights(executable))

    def _key(self, specs: Sequence[TensorSpec], *subject: str) -> str:
        if self._digest is None:
            self._digest = graph_digest(self._graph)
            release(self._graph)  # a start from the cache does not read them again
        passes_off = ", ".join(sorted(self._options.passes_off))
        if self._graph.feedback:
            subject = *subject, f"states {self._graph.feedback}"
        options = (self._own.key, f"winograd {self._options.winograd}", f"passes off {passes_off}", *subject)
        return program_key(self._graph, self._digest, specs, *options, f"precision {self._options.precision}")

    def _fits(self, executable: Executable, specs: Sequence[TensorSpec], progress: Progress) -> bool:
        """Return whether the operators that run on the reference are still those of the optimised graph."""
        if not executable.needs_graph:
            return True
        return executable.operators == tuple(
            op.name for op in self._pipeline.optimised(specs, self.host, progress).operators
        )

    def _check(self, executable: Executable, specs: Sequence[TensorSpec]) -> None:
        """Check that a plan stays inside its memory; a plan that does not is a defect of the compiler.

        Raises:
            CompileError: it does not.
        """
        try:
            check_plan(executable, whole_inputs(self._graph.feedback, specs))
        except CompileError as error:
            report_defect("", error)
            raise


def _texts(inputs: Sequence[Port]) -> list[tuple[int, str]]:
    """Return the inputs that hold Python strings and are kept by name, with their numbers."""
    return [(k, each.operand) for k, each in enumerate(inputs) if each.spec and each.spec.dtype.hasobject]
