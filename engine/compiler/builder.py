"""Programs of one graph: from the cache where it has them, compiled where it has not."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engine.compiler.blueprint import Blueprint, NotYetMadeError
from engine.compiler.bodies import Bodies, Compiles, bodies_of
from engine.compiler.branches import Branches
from engine.compiler.bundling.carried import Carried
from engine.compiler.cache.cache import Cache
from engine.compiler.cache.fingerprint import graph_digest, program_key
from engine.compiler.cache.notes import read_note, write_note
from engine.compiler.cache.version import is_unchanged
from engine.compiler.codegen import object_code
from engine.compiler.codegen.host import Host, detect
from engine.compiler.measuring.record import is_measured, this_host
from engine.compiler.runtime.pages import release
from engine.compiler.runtime.program import Origin, Program
from engine.compiler.weights import Weights, with_own_weights
from engine.compiler.widening import NotWidenedError, is_narrow, wide_specs, widened
from engine.errors import CompileError
from engine.figures import METER
from engine.graph import RuntimeGraph, RuntimeOperator
from engine.graph.port import static_specs
from engine.layers.creation.container import Constant
from engine.memory.blocks import is_mapped, move_to_disk
from engine.memory.sharing import shared
from engine.options import Options
from engine.passes import LOWERING_PASSES, PassReport, optimise
from engine.passes.quantised_products import quantised_products
from engine.progress import Progress, asking, silent
from engine.tensor import Array, TensorSpec, is_known, known_value

if TYPE_CHECKING:
    from engine.compiler.lowering.choosing import Choose

# Programs of a graph of many shapes that are kept in the cache, each with all weights.
MOST_KEPT = 8
# How often a graph is lowered, each time with less of what could not be made.
ATTEMPTS = 6


class Builder:
    """Makes the programs of a graph; one at a time.

    Args:
        host: the processor to generate for; None for this one.
        compiles: makes bodies of operators ready that choose or repeat; None for the reference.

    Attributes:
        bodies: those of its operators.
        carried: the programs of the graph's bundle; None where it has none.
        is_open: whether inputs come in many shapes, so that programs share code and weights.
        known_s: what the last program took that was made of code there was.

    Raises:
        CompileError: there is no generator for this processor.
    """

    def __init__(
        self, graph: RuntimeGraph, options: Options, host: Host | None = None, compiles: Compiles | None = None
    ) -> None:
        self.carried = None if graph.bundle is None else Carried(graph, graph.bundle, options)
        self._is_measured = host is not None or self.carried is None
        self._host = host or (self.carried.host if self.carried else None)
        if self._host is None:
            detect()  # whether there is a generator; what is measured can wait
        self._graph = self._taken = graph
        self._branches = Branches(graph)
        self.bodies = Bodies(compiles)
        self._options = options
        self._cache = Cache(folder=options.cache, max_bytes=options.cache_max_bytes) if options.cache else None
        self._digest: bytes | None = None
        self._optimised: RuntimeGraph | None = None
        self._is_wide = is_narrow(graph)
        self._passes: list[PassReport] = []
        self.is_open = static_specs(graph.inputs) is None
        self.known_s = 0.0
        self._made = self._kept = 0
        self._weights = Weights() if self.is_open else None

    @property
    def host(self) -> Host:
        """That processor, measured when it is first asked for; for programs of a bundle when others are compiled."""
        if self._host is None:
            self._host = this_host(self._options)
        return self._host

    def program(
        self,
        specs: Sequence[TensorSpec],
        *,
        refresh: bool = False,
        tune: bool = False,
        progress: Progress = silent,
        cores: int = 0,
    ) -> Program:
        """The program for inputs of these shapes.

        Args:
            refresh: compile even what the cache or a bundle has, and replace it there.
            tune: compile, with kernels measured against each other, and remember which is fastest.
            progress: told how far it is.
            cores: that it may use; 0 for what is made in the background, which gets what others leave of one.

        Raises:
            RunCancelledError: nobody wants it any more; found out before every pass, operator and kernel.
            CompileError: generated code is not valid, or no operator has a kernel.
            EngineError: an operator does not accept these shapes.
        """
        start, progress = time.perf_counter(), asking(progress)
        blueprint, is_cached, entry_bytes = self._obtain(specs, refresh or tune, progress, cores, tune)
        program = self._loaded(replace(blueprint, constants=self._placed(blueprint)), specs, progress)
        release(self._graph)
        if self._is_wide and not self.is_open and not blueprint.needs_graph:
            self._optimised = None  # its weights take memory of their own
        elif self._is_wide and self._optimised is not None:
            release(self._optimised)
        object_code.settle()
        time_s = time.perf_counter() - start
        METER.made(time_s, is_cached=is_cached)
        return replace(program, origin=Origin(is_cached=is_cached, time_s=time_s, entry_bytes=entry_bytes))

    def _loaded(self, blueprint: Blueprint, specs: Sequence[TensorSpec], progress: Progress) -> Program:
        operators: Mapping[str, RuntimeOperator] = {}
        known: Mapping[str, object] = {}
        if blueprint.needs_graph:
            graph = self._optimise(specs, progress)
            operators = {op.name: self.bodies.inside(op) for op in graph.operators if op.name in blueprint.calls}
            known = _known(graph, self._wide_specs(specs))
        inputs = (graph if blueprint.needs_graph else self._graph).inputs
        texts = [(k, each.operand) for k, each in enumerate(inputs) if each.spec and each.spec.dtype.hasobject]
        code = object_code.Code(blueprint.code, self.host)
        return Program(blueprint=blueprint, code=code, operators=operators, known=known, texts=texts)

    def prepare_bodies(self, program: Program, specs: Sequence[TensorSpec]) -> None:
        """Compile ahead of their first run the bodies that operators of a program run themselves.

        Raises:
            RunCancelledError: nobody wants it any more.
        """
        if any(map(bodies_of, program.operators.values())):
            graph = self._optimise(specs, asking(silent))
            self.bodies.prepare(program.operators.values(), graph.infer(self._wide_specs(specs)))

    def known_program(self, specs: Sequence[TensorSpec]) -> Program | None:
        """The program for inputs of these shapes, where all its code was made for others: takes milliseconds.

        Raises:
            CompileError, EngineError: as ``program`` says.
        """
        if not self._made:
            return None
        start = time.perf_counter()
        try:
            blueprint = self._compile(specs, asking(silent), 1, is_known=True)
        except NotYetMadeError:
            return None
        program = self._loaded(blueprint, specs, silent)
        self.known_s = time.perf_counter() - start
        return replace(program, origin=Origin(time_s=self.known_s))

    def carries(self, specs: Sequence[TensorSpec]) -> bool:
        """Whether the graph's bundle has a program for inputs of these shapes."""
        return self.carried is not None and self.carried.holds(specs)

    def is_kept(self, specs: Sequence[TensorSpec]) -> bool:
        """Whether the cache or a bundle has the program for inputs of these shapes; nothing is measured to find out."""
        if self.carries(specs):
            return True
        if self._cache is None or (self._host is None and not is_measured(self._options)):
            return False
        return self._cache.has(self._key(specs))

    def _placed(self, blueprint: Blueprint) -> Array:
        """The packed weights where they stay: shared with other processes, or the tables among them on a disk."""
        constants = shared(blueprint.constants)
        if blueprint.tables_at is not None and not is_mapped(constants):
            move_to_disk(constants[blueprint.tables_at :], str(self._options.cache or ""))
        return constants

    def note(self, specs: Sequence[TensorSpec], subject: str) -> bytes | None:
        """What was kept of the program for inputs of these shapes; None if nothing was."""
        return None if self._cache is None else read_note(self._cache.folder, self._note_key(specs, subject))

    def keep(self, specs: Sequence[TensorSpec], subject: str, content: bytes) -> None:
        """Keep something of it, found again by whoever would run the same code."""
        if self._cache is not None and is_unchanged():
            write_note(self._cache.folder, self._note_key(specs, subject), content)

    def _note_key(self, specs: Sequence[TensorSpec], subject: str) -> str:
        key = self.carried.key(specs) if self.carried and self.carried.holds(specs) else self._key(specs)
        return hashlib.sha256(f"{key} {subject}".encode()).hexdigest()

    def blueprint(self, specs: Sequence[TensorSpec], progress: Progress = silent, cores: int = 1) -> Blueprint:
        """What ``program`` makes callable, from the cache where it is there.

        Raises:
            RunCancelledError, CompileError, EngineError: as ``program`` says.
        """
        return with_own_weights(self._obtain(specs, False, asking(progress), cores)[0])

    def _obtain(
        self, specs: Sequence[TensorSpec], refresh: bool, progress: Progress, cores: int, tune: bool = False
    ) -> tuple[Blueprint, bool, int]:
        """A blueprint, whether it was in the cache, and how many bytes it takes there."""
        carried = None if refresh or self.carried is None else self.carried.load(specs)
        if carried is not None and self._fits(carried[0], specs, progress):
            return carried[0], True, carried[1]
        self._measure()
        if self._cache is None:
            return self._compile(specs, progress, cores, tune), False, 0
        key = self._key(specs)
        found = None if refresh else self._cache.load(key)
        if found is not None and self._fits(found.blueprint, specs, progress):
            return found.blueprint, True, found.bytes
        made = self._made
        blueprint = self._compile(specs, progress, cores, tune)
        # What was made of code there was is made again as quickly, but for a process that has none.
        is_new = self._kept < MOST_KEPT and (not self._kept or made < self._made)
        if not is_unchanged() or not (refresh or not self.is_open or is_new):
            return blueprint, False, 0
        self._kept += 1
        return blueprint, False, self._cache.save(key, with_own_weights(blueprint))

    def _measure(self) -> None:
        """Something is to be compiled beside the programs of a bundle, for this machine as it is."""
        if not self._is_measured:
            self._host, self._is_measured = this_host(self._options), True

    def _key(self, specs: Sequence[TensorSpec]) -> str:
        self._measure()
        if self._digest is None:
            self._digest = graph_digest(self._graph)
            release(self._graph)  # a start from the cache looks at them no more
        passes_off = ", ".join(sorted(self._options.passes_off))
        options = (self.host.key, f"winograd {self._options.winograd}", f"passes off {passes_off}")
        return program_key(self._graph, self._digest, specs, *options)

    def _fits(self, blueprint: Blueprint, specs: Sequence[TensorSpec], progress: Progress) -> bool:
        """Whether the operators it leaves to the reference are those of the graph, as the passes leave it today."""
        if not blueprint.needs_graph:
            return True
        return blueprint.operators == tuple(op.name for op in self._optimise(specs, progress).operators)

    def _compile(
        self, specs: Sequence[TensorSpec], progress: Progress, cores: int, tune: bool = False, *, is_known: bool = False
    ) -> Blueprint:
        # Kernels and rules take longer to import than a start from the cache takes in all, and that needs none of them.
        from engine.compiler.assembly.objects import RefusedError
        from engine.compiler.lowering.choosing import take_first
        from engine.compiler.tuning.stopwatch import Stopwatch
        from engine.compiler.tuning.tuner import Tuner

        stopwatch = Stopwatch(self.host, _weights_bytes(self._graph)) if tune else None
        tuner = Tuner(self._options.cache, self.host, stopwatch)
        # Where shapes share code, what is best for one of them says little of the others.
        choose: Choose = take_first if self.is_open and not tune else tuner
        weights = None if tune else self._weights
        # First by itself, without what it was fused with; then not at all.
        alone: set[str] = set()
        refused: dict[str, str] = {}
        for _ in range(ATTEMPTS):
            try:
                blueprint = self._generated(specs, alone, refused, progress, cores, choose, weights, is_known=is_known)
                return replace(blueprint, tuned=tuner.told)
            except RefusedError as error:
                if error.reasons.keys() <= refused.keys():
                    break
                refused |= {name: why for name, why in error.reasons.items() if name in alone}
                alone |= error.reasons.keys()
        raise CompileError("its kernels cannot be made", found=_first(refused))

    def _generated(self, *arguments: Any, is_known: bool) -> Blueprint:
        """What _generate() makes, of 16-bit floats where they cannot be taken for float32."""
        from engine.compiler.lowering.narrow import NotNarrowedError

        try:
            return self._generate(*arguments, is_known=is_known)
        except (NotWidenedError, NotNarrowedError):
            self._is_wide, self._optimised = False, None
            return self._generate(*arguments, is_known=is_known)

    def _generate(
        self,
        specs: Sequence[TensorSpec],
        alone: Collection[str],
        refused: Mapping[str, str],
        progress: Progress,
        cores: int,
        choose: Choose,
        weights: Weights | None,
        *,
        is_known: bool,
    ) -> Blueprint:
        """Lower the graph, with some operators fused with nothing or left to the reference, and make what runs it."""
        from engine.compiler.assembly.generation import make_blueprint
        from engine.compiler.lowering import Lowering, lower
        from engine.compiler.lowering.narrow import Narrow, narrow_of
        from engine.compiler.lowering.outputs import laid_flat

        graph, given = self._optimise(specs, progress), self._taken
        outputs = laid_flat(graph.operators, _returned(graph))
        before = laid_flat(given.operators, _returned(given))
        if self._is_wide and len(before) != len(outputs):
            raise NotWidenedError("its outputs are others")
        lowering = Lowering(
            graph.operators,
            graph.infer(self._wide_specs(specs)),
            [port.operand for port in graph.inputs],
            outputs,
            self.host,
            self._options,
            alone,
            refused,
            choose,
            self.is_open,
            weights,
            narrow_of(given, graph, specs, before) if self._is_wide else Narrow(),
        )
        lower(lowering, lambda number: progress("lowering", number, len(graph.operators)))
        fusions = [
            PassReport(name=name, removed=len(ops), changed=tuple(ops)) for name, ops in lowering.fusions.items()
        ]
        passes = [*self._passes, *fusions]
        blueprint = make_blueprint(
            lowering, passes, progress, cores, weights=weights, is_open=self.is_open, is_known=is_known
        )
        self._made += bool(lowering.made)
        lowering.forget()
        if not blueprint.steps and not any(map(bodies_of, graph.operators)):
            raise CompileError("no operator of the graph has a kernel", found=_first(blueprint.reasons))
        return blueprint

    def _optimise(self, specs: Sequence[TensorSpec], progress: Progress) -> RuntimeGraph:
        taken = self._branches.taken(specs)
        if self._optimised is None or taken is not self._taken:
            self._taken = taken
            off = self._options.passes_off - set(LOWERING_PASSES)
            if not self.host.has_dots:  # floats have better kernels
                off |= {quantised_products.__name__}
            graph = widened(taken, is_kept=self.is_open) if self._is_wide else taken
            self._optimised, self._passes = optimise(graph, off, lambda: progress("passes", 0, 1))
        return self._optimised

    def _wide_specs(self, specs: Sequence[TensorSpec]) -> Sequence[TensorSpec]:
        """Inputs as the graph that is lowered has them."""
        return wide_specs(specs) if self._is_wide else specs


def _returned(graph: RuntimeGraph) -> list[str]:
    return [op.inputs[0] for op in graph.source.operators if op.type == "pnnx.Output"]


def _weights_bytes(graph: RuntimeGraph) -> int:
    return sum(each.data.nbytes for op in graph.operators for each in op.attributes.values())


def _known(graph: RuntimeGraph, specs: Sequence[TensorSpec]) -> dict[str, object]:
    """Values of operands that no run changes."""
    values = {name: known_value(value) for name, value in graph.infer(specs).items()}
    known = {name: value for name, value in values.items() if is_known(value)}
    for op in graph.operators:
        if op.layer is not None and isinstance(op.definition, Constant):
            known[op.outputs[0].name] = op.layer.forward([])
    return known


def _first(reasons: Mapping[str, str]) -> str:
    return ", ".join(f"{name}: {reason}" for name, reason in list(reasons.items())[:3]) or "an empty graph"
