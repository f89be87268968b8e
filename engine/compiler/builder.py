"""Programs of one graph: from the cache where it has them, compiled where it has not."""

from __future__ import annotations

import hashlib
import statistics
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

from engine.compiler.blueprint import Blueprint, NotYetMadeError
from engine.compiler.bodies import Bodies, Compiles, bodies_of
from engine.compiler.bundling.carried import Carried
from engine.compiler.cache.cache import Cache
from engine.compiler.cache.fingerprint import graph_digest, program_key
from engine.compiler.cache.notes import read_note, write_note
from engine.compiler.cache.version import is_unchanged
from engine.compiler.codegen import object_code
from engine.compiler.codegen.host import Host, detect
from engine.compiler.generator import Generator
from engine.compiler.measuring.record import is_measured, this_host
from engine.compiler.runtime.pages import release
from engine.compiler.runtime.program import Origin, Program
from engine.compiler.weights import with_own_weights
from engine.figures import METER
from engine.graph import RuntimeGraph, RuntimeOperator
from engine.memory.blocks import is_mapped, move_to_disk
from engine.memory.collecting import without_collector
from engine.memory.sharing import shared
from engine.options import Options
from engine.progress import Progress, asking, silent
from engine.tensor import Array, TensorSpec

# Programs of a graph of many shapes that are kept in the cache, each with all weights.
MOST_KEPT = 8
# What is left of a time that was too long when it is asked for again: others may have kept the processor busy then.
_EASED = 0.95


class Builder:
    """Makes the programs of a graph; one at a time.

    Args:
        host: the processor to generate for; None for this one.
        compiles: makes bodies of operators ready that choose or repeat; None for the reference.

    Attributes:
        bodies: the bodies of its operators.
        carried: the programs of the graph's bundle; None where it has none.
        known_s: how long ``known_program`` took lately, but for the one time it was disturbed.

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
        self._graph = graph
        self._generator = Generator(graph, options)
        self.bodies = Bodies(compiles)
        self._options = options
        self._cache = Cache(folder=options.cache, max_bytes=options.cache_max_bytes) if options.cache else None
        self._digest: bytes | None = None
        self.known_s = 0.0
        self._lately: deque[float] = deque(maxlen=3)
        self._kept = 0

    @property
    def is_open(self) -> bool:
        """Whether inputs come in many shapes, so that programs share code and weights."""
        return self._generator.is_open

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
        self._generator.release(needs_graph=blueprint.needs_graph)
        object_code.settle()
        time_s = time.perf_counter() - start
        METER.made(time_s, is_cached=is_cached)
        return replace(program, origin=Origin(is_cached=is_cached, time_s=time_s, entry_bytes=entry_bytes))

    def _loaded(self, blueprint: Blueprint, specs: Sequence[TensorSpec], progress: Progress) -> Program:
        operators: Mapping[str, RuntimeOperator] = {}
        known: Mapping[str, object] = {}
        if blueprint.needs_graph:
            graph = self._generator.optimised(specs, self.host, progress)
            operators = {op.name: self.bodies.inside(op) for op in graph.operators if op.name in blueprint.calls}
            known = self._generator.known_values(graph, specs)
        inputs = (graph if blueprint.needs_graph else self._graph).inputs
        texts = [(k, each.operand) for k, each in enumerate(inputs) if each.spec and each.spec.dtype.hasobject]
        code = object_code.loaded(blueprint.code, self.host, is_apart=self.is_open)
        return Program(blueprint=blueprint, code=code, operators=operators, known=known, texts=texts)

    def prepare_bodies(self, program: Program, specs: Sequence[TensorSpec]) -> None:
        """Compile ahead of their first run the bodies that operators of a program run themselves.

        Raises:
            RunCancelledError: nobody wants it any more.
        """
        if any(map(bodies_of, program.operators.values())):
            graph = self._generator.optimised(specs, self.host, asking(silent))
            self.bodies.prepare(program.operators.values(), self._generator.infer(graph, specs))

    def known_program(self, specs: Sequence[TensorSpec], *, is_best: bool = False) -> Program | None:
        """The program for inputs of these shapes, where all its code was made for others: takes milliseconds.

        Args:
            is_best: whether it has to be the one that ``program`` would make.

        Raises:
            CompileError, EngineError: as ``program`` says.
        """
        if not self._generator.made:
            return None
        start = time.perf_counter()
        try:
            with without_collector():
                blueprint = self._generator.compile(specs, self.host, asking(silent), 1, is_known=True, is_best=is_best)
                program = self._loaded(blueprint, specs, silent)
        except NotYetMadeError:
            return None
        took_s = time.perf_counter() - start
        self._lately.append(took_s)
        self.known_s = statistics.median(self._lately)
        return replace(program, origin=Origin(time_s=took_s))

    def makes_soon(self, patience_s: float) -> bool:
        """Whether ``known_program`` takes no longer than that; where it took longer it is tried again after a while."""
        if self.known_s <= patience_s:
            return True
        self.known_s *= _EASED
        return False

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
            return self._generator.compile(specs, self.host, progress, cores, tune=tune), False, 0
        key = self._key(specs)
        found = None if refresh else self._cache.load(key)
        if found is not None and self._fits(found.blueprint, specs, progress):
            return found.blueprint, True, found.bytes
        made = self._generator.made
        blueprint = self._generator.compile(specs, self.host, progress, cores, tune=tune)
        # A program of code that was made before is made again as quickly; the first is kept for processes without code.
        is_new = self._kept < MOST_KEPT and (not self._kept or made < self._generator.made)
        is_wanted = refresh or not self.is_open or is_new
        if not is_wanted or not is_unchanged():
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
        return blueprint.operators == tuple(
            op.name for op in self._generator.optimised(specs, self.host, progress).operators
        )
