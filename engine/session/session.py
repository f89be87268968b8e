"""The session: a graph made ready to run, held by a program or a server."""

from __future__ import annotations

import copy
import os
import warnings
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import numpy as np

from engine.cancellation import Progress, cancelling, silent
from engine.errors import EngineError, ExecutionError, GraphError, InputError, RunCancelledError, from_foreign
from engine.graph import RuntimeGraph, execute
from engine.graph.batch.batching import Batching, join
from engine.graph.feedback import find_feedback
from engine.graph.running.feeding import PlainInputs, check_specs, feed, feed_specs
from engine.graph.running.watch import Watch
from engine.graph.typical_sizes import typical_specs
from engine.options import CACHE_MAX_BYTES, Backend, Options, Precision, Winograd, cache_folder
from engine.profiling import MeasuredRun, join_kernels, join_rows, measured
from engine.session.batches import Batches
from engine.session.dispatch import DispatchCache, Estimates, Given, Route, Shapes, places_in, shapes_of
from engine.session.executor import Executor
from engine.session.outputs import Outputs, join_taps
from engine.session.state import State
from engine.tensor import Array, TensorSpec
from engine.toolchain import write_bundle

STATE_CAPACITY: Final = 2048


class Session:
    """Runner of a graph; many threads may call it at once.

    Args:
        graph: a built graph; editing it later changes nothing in this session.
        backend: ``reference`` runs every operator's numpy layer. ``compiled`` runs machine code, compiled when shapes
            first occur, and the layers of operators without a kernel. ``auto`` is ``compiled`` with the reference as
            fallback: if nothing can be compiled; while a large graph that is not in the cache is compiled in the
            background, unless ``prepare`` was called; and for shapes other than the file's, which are compiled in the
            background when they come again.
        threads: cores one run may use; None for all this process may use.
        winograd: ``auto``, or ``off`` for convolutions that are summed directly: slower, and closer to the reference.
        precision: ``float32``. With ``bf16`` or ``auto``, linear layers, convolutions, recurrent networks and attention
            round factors to bfloat16 and sum in float32, where that is faster and the processor has instructions for it
            (AVX512-BF16); elsewhere they compute in float32. Subnormal factors count as 0.
        passes_off: names of the graph optimisations to leave out; see docs/passes.md.
        cache: folder of the program cache, shared with later processes. ``auto`` is ``pnnx-serve`` in the user's
            folder for caches; with None every process compiles anew.
        cache_max_bytes: size limit of the cache; the least recently used programs are evicted first.
        instances_max_bytes: limit of memory for machine code, weights and values of shapes other than the file's, in
            all sessions of the process together; the reference runs less frequent shapes. None is a quarter of the
            memory.
        measure_host: deprecated and ignored.
        states: name of an output -> name of the input that is its value in the next run of a stream. Such a session
            runs with a state, which ``new_state`` makes.
        state_capacity: maximum size of the dimension along which a state grows, such as tokens.

    Raises:
        InputError: a state has no such input or output.
        ParameterError: an invalid option, see ``Options``.
        GraphError: not a graph, or not built.
    """

    def __init__(
        self,
        graph: RuntimeGraph,
        backend: Backend = "auto",
        threads: int | None = None,
        *,
        winograd: Winograd = "auto",
        precision: Precision = "float32",
        passes_off: Collection[str] = (),
        cache: str | os.PathLike[str] | None = "auto",
        cache_max_bytes: int = CACHE_MAX_BYTES,
        instances_max_bytes: int | None = None,
        measure_host: bool | None = None,
        states: Mapping[str, str] | None = None,
        state_capacity: int = STATE_CAPACITY,
    ) -> None:
        if measure_host is not None:
            warnings.warn("measure_host does nothing and will go", DeprecationWarning, stacklevel=2)
        if not isinstance(graph, RuntimeGraph):
            raise GraphError(
                "the argument is not a graph", found=type(graph).__name__, expected="RuntimeGraph(param, bin), built"
            )
        self.graph = copy.copy(graph)  # a copy: editing the caller's changes nothing here
        if states:
            self.graph.feedback = find_feedback(graph.inputs, graph.outputs, states, state_capacity)
            self.graph.bundle = None  # its programs have no states
        self.options = Options(
            backend=backend,
            threads=threads,
            winograd=winograd,
            precision=precision,
            passes_off=frozenset(passes_off),
            cache=cache_folder(cache),
            cache_max_bytes=cache_max_bytes,
            instances_max_bytes=instances_max_bytes,
        )
        self._executor = Executor(self.options)
        self._batches = Batches(self.graph, self._executor)
        self._estimates = Estimates(self.graph, self._executor, self._batches)
        self._plain = PlainInputs(self.graph.inputs)
        self._routes: DispatchCache[Route] = DispatchCache()
        self._names = tuple(port.name for port in self.graph.outputs)
        _ = graph.plan  # raises if the graph is not built
        stored = (each.data.nbytes for operator in self.graph.source.operators for each in operator.attributes.values())
        self._weights_bytes = sum(stored)

    @property
    def batching(self) -> Batching:
        """Method of running batches other than the exported one; determined on first use."""
        return self._batches.batching

    @property
    def threads(self) -> int | None:
        """Cores one run may use; None for all this process may use."""
        return self.options.threads

    @property
    def backend(self) -> str:
        """The backend in use: ``compiled`` or ``reference``."""
        return "compiled" if self._executor.compiles else "reference"

    def close(self) -> None:
        """Release the memory and threads of compiled programs; a later run creates them again."""
        self._executor.close()

    @property
    def memory(self) -> dict[str, int]:
        """Bytes by kind: ``weights`` as the file has them, ``compiled`` code with packed weights and arenas.

        Kernels of a compiled graph read the packed weights, and the system may reclaim the pages of the others.
        """
        return {"weights": self._weights_bytes, "compiled": self._executor.compiled_bytes}

    @property
    def compile_failure(self) -> str | None:
        """Reason why the reference runs a graph that should be compiled; None while nothing has failed."""
        return self._executor.failure

    @property
    def compiler_defects(self) -> int:
        """Number of compiler failures that were not typed refusals."""
        return self._executor.defects.count

    def describe_defects(self) -> list[dict[str, Any]]:
        """Return the different defects of the compiler: ``operator``, ``type`` and ``error`` of each."""
        return self._executor.defects.describe()

    def run(
        self,
        inputs: Given,
        profile: bool = False,
        *,
        taps: Iterable[str] = (),
        cancelled: Callable[[], bool] | None = None,
        state: State | None = None,
    ) -> Outputs:
        """Compute the graph's outputs.

        Args:
            inputs: array-likes in graph order, or by name; a fixed first dimension may be any batch size.
            profile: also measure every operator; parts of a batch then run one after the other.
            taps: names of operands whose values are returned too, in ``taps`` of the result; the reference runs them,
                as machine code does not compute every operand.
            cancelled: called before every operator, and every few milliseconds of machine code, by every thread that
                runs a part of a batch; if it returns true the run stops with RunCancelledError.
            state: inputs that earlier runs computed, see ``new_state``; this run's go into it. The other inputs are
                given, and the other outputs returned. A run that fails leaves it as it was.

        Returns:
            The outputs in graph order; they share no memory with the inputs or each other.

        Raises:
            InputError: the inputs do not fit the graph.
            CompileError: the backend is ``compiled`` and nothing can be compiled.
            EngineError: an operator refuses its operands or fails; names the operator.
        """
        try:
            if cancelled is None:
                return self._run_any(inputs, profile, taps, state)
            with cancelling(cancelled):
                return self._run_any(inputs, profile, taps, state)
        except EngineError:
            raise
        except Exception as exc:  # callers meet nothing but an EngineError
            raise from_foreign(exc, ExecutionError, "the run failed", self.graph.name) from exc

    def _in_order(self, arrays: Sequence[Array]) -> Outputs:
        """Name the arrays of the graph's outputs; a returned list of unknown length can give more arrays than ports."""
        outputs = Outputs(arrays)
        is_known = len(arrays) == len(self._names)
        outputs.names = self._names if is_known else tuple(f"out{index}" for index in range(len(arrays)))
        return outputs

    def _run_any(self, inputs: Given, profile: bool, taps: Iterable[str], state: State | None) -> Outputs:
        if state is not None or self.graph.feedback:
            return self._run_with_state(inputs, profile, tuple(taps), state)
        if profile or taps:
            return self._run_watched(inputs, profile, tuple(taps))
        key = shapes_of(inputs)
        route = None if key is None else self._routes.get(key)
        if route is None:
            return self._run_new(inputs, key)
        given: Any = [inputs] if isinstance(inputs, np.ndarray) else inputs
        arrays = [given[place] for place in route.places]
        instance = route.instance()
        if instance is None:  # not compiled yet, or evicted
            instance = self._executor.instance(route.graph, arrays)
            if instance is not None and key is not None:
                self._routes.keep(key, Route(route.graph, route.places, weakref.ref(instance)))
        return self._in_order(self._executor.run(route.graph, arrays, None, instance))

    def new_state(self, initial: Mapping[str, Array] | None = None, *, batch: int = 1) -> State:
        """Return the state of a new stream.

        Args:
            initial: first values by name of the input; by default zeros, and nothing where the state grows.
            batch: size of an open first dimension.

        Raises:
            InputError: the session has no states, or an initial value is missing or does not fit.
        """
        if not self.graph.feedback:
            raise InputError("the session has no states", expected="Session(graph, states={output: input})")
        return State(self.graph.feedback, self.graph.inputs, batch, initial or {})

    def _run_with_state(self, inputs: Given, profile: bool, taps: tuple[str, ...], state: State | None) -> Outputs:
        if state is None or not self.graph.feedback or taps:
            found = "none" if state is None else "taps" if self.graph.feedback else "a session without states"
            raise InputError("a run of a session with states needs a state and no taps", found=found)
        feedback = self.graph.feedback
        returned = {each.output for each in feedback}
        runs: list[MeasuredRun] | None = [] if profile else None
        with state.lock:
            results = self._executor.run(self.graph, state.joined(self.graph.inputs, inputs), runs)
            state.update([results[each.output] for each in feedback])
        kept = [k for k, _ in enumerate(results) if k not in returned]
        outputs = Outputs(results[k] for k in kept)
        outputs.names = tuple(self._names[k] for k in kept)
        if runs is not None:
            outputs.profile, outputs.kernels = join_rows(runs), join_kernels(runs)
        return outputs

    def _run_new(self, inputs: Given, key: Shapes | None) -> Outputs:
        """Run inputs of shapes that have not occurred before, that have to be converted, or that run in parts."""
        plain = self._plain.of(inputs)
        if plain is not None and key is not None:
            outputs = self._in_order(self._executor.run(self.graph, plain, None))
            self._routes.keep(key, Route(self.graph, self._plain.places(inputs), lambda: None))
            return outputs
        cut = self._batches.cut(feed(self.graph.inputs, inputs))
        outputs = self._in_order(self._executor.run_parts(cut, None))
        if key is not None and len(cut.parts) == 1 and (places := places_in(inputs, cut.parts[0])) is not None:
            self._routes.keep(key, Route(cut.graph, places, lambda: None))
        return outputs

    def _run_watched(self, inputs: Given, profile: bool, taps: tuple[str, ...]) -> Outputs:
        runs: list[MeasuredRun] | None = [] if profile else None
        cut = self._batches.cut(feed(self.graph.inputs, inputs))
        if not taps:
            outputs = self._in_order(self._executor.run_parts(cut, runs))
        else:
            watches = [Watch(cut.graph.plan, taps=taps, measured=profile) for _ in cut.parts]
            answers = [execute(cut.graph.plan, part, watch) for part, watch in zip(cut.parts, watches, strict=True)]
            outputs = self._in_order(answers[0] if len(answers) == 1 else join(answers, cut.axes))
            outputs.taps = join_taps(watches, taps)
            runs = [measured(watch) for watch in watches] if profile else None
        if runs is not None:
            outputs.profile, outputs.kernels = join_rows(runs), join_kernels(runs)
            outputs.peak_bytes = max(run.peak_bytes for run in runs)
            outputs.buffers = runs[0].buffers if len(runs) == 1 else []
        return outputs

    def estimate_bytes(self, inputs: Given, state: State | None = None) -> int:
        """Return the most bytes that a run on these inputs takes in addition to them, as far as shapes tell.

        Computed once for each shape; nothing is compiled for it. If machine code for these shapes exists, its memory
        exists too, and only the outputs are new, and intermediate values where sizes are dynamic.

        Args:
            inputs, state: as for ``run``; nothing is computed.

        Raises:
            InputError: the inputs do not fit the graph.
        """
        return self._estimates.bytes_of(inputs, state)

    def is_compiled(self, inputs: Given, state: State | None = None, *, exact: bool = True) -> bool:
        """Return whether the machine code for these inputs is ready; else a run compiles or uses the reference.

        Args:
            inputs: of the run; only their shapes count.
            state: state of the run. Code for any length of it serves all lengths.
            exact: whether the code must be compiled for these shapes, or may be valid for other shapes as well. In the
                latter case, its numbers for these shapes are computed and kept.

        Raises:
            InputError: the inputs do not fit the graph.
        """
        return self._estimates.is_compiled(inputs, state, exact=exact)

    def request_compilation(self, inputs: Given) -> None:
        """Request background compilation for inputs of these shapes; it starts if they occur more than once.

        Raises:
            InputError: the inputs do not fit the graph.
        """
        known = self._estimates.of(inputs)
        self._executor.request(known.graph, known.specs)

    def discard(self, specs: Sequence[TensorSpec]) -> None:
        """Release the compiled programs for inputs of these shapes; those of the file's shapes stay.

        Raises:
            InputError: the specs do not fit the graph, or it cannot run this batch.
        """
        graph, known = self._batches.graph_for(self._given_specs(specs))
        found = self._executor.find(graph)
        if known != self._batches.own and found is not None:
            found.instances.discard(known)

    def prepare(
        self,
        batch: int | None = None,
        *,
        specs: Sequence[TensorSpec] | None = None,
        refresh: bool = False,
        progress: Progress | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> dict[str, Any] | None:
        """Compile now for the exported shapes, or for others.

        Where sizes are dynamic, load what an earlier process has stored. If nothing stored is valid for typical sizes
        (images of 224 × 224, 128 tokens), compile for these, and so for all sizes. Then run zeros once.

        Args:
            batch: another batch size than theirs.
            specs: of the inputs, in graph order; by default the exported ones.
            refresh: compile again what was compiled before, here or in the cache.
            progress: called with the progress.
            cancelled: called between kernels, returns whether to stop.

        Returns:
            The compiled programs as plain data, see docs/graph.md; None on the reference, and where sizes are dynamic.

        Raises:
            InputError: the specs do not fit the graph, or it cannot run this batch.
            CompileError: backend ``compiled`` and nothing can be compiled.
            RunCancelledError: ``cancelled`` said so.
        """
        wanted = [port.spec for port in self.graph.inputs] if specs is None else self._given_specs(specs)
        known = [spec for spec in wanted if spec is not None]
        if batch is not None and len(known) == len(wanted):
            known = self._batches.with_batch(known, batch)
        if self.options.backend == "reference":
            return None
        with cancelling(cancelled):
            if len(known) != len(wanted) or not all(s.is_static for s in known):
                self._executor.prepare_dynamic(self.graph, batch or 1, progress or silent)
                self._run_first(batch or 1)
                return None
            graph, known = self._batches.graph_for(known, compiling=True)
            return self._executor.prepare(graph, known, refresh=refresh, progress=progress or silent)

    def _given_specs(self, specs: Sequence[TensorSpec]) -> list[TensorSpec]:
        found = feed_specs(self.graph.inputs, specs)
        check_specs(self.graph.inputs, found)
        return found

    def _run_first(self, batch: int) -> None:
        """Run zeros of typical sizes: the first request finds memory that has been touched, tables and threads.

        Zeros may be invalid inputs, so that errors mean nothing.
        """
        specs = typical_specs(self.graph, batch)
        if specs is None or any(spec.dtype.hasobject for spec in specs) or not self._executor.holds(self.graph, specs):
            return
        try:
            self.run([np.zeros(spec.sizes, spec.dtype) for spec in specs])
        except RunCancelledError:
            raise
        except EngineError:
            return

    def carries(self, specs: Sequence[TensorSpec]) -> bool:
        """Return whether the bundle the graph came from has a program for inputs of these shapes; false for a pair.

        Raises:
            InputError: the specs do not fit the graph, or it cannot run this batch.
        """
        return self.graph.bundle is not None and self._executor.carries(
            *self._batches.graph_for(self._given_specs(specs))
        )

    def save_bundle(
        self,
        folder: str | os.PathLike[str],
        shapes: Sequence[Sequence[TensorSpec]] = (),
        *,
        batches: Sequence[int] = (),
        name: str | None = None,
        files: Mapping[str, bytes] | None = None,
        target: str | None = None,
        tag: str | None = None,
        replace: bool = False,
        progress: Progress | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> list[dict[str, Any]]:
        """Write a bundle, a folder that ``engine.load`` accepts as a model: the pair, and programs compiled now.

        A process that loads it on such a machine, with the same engine, needs no compiler for these shapes.

        Args:
            folder: the target; it appears whole or not at all.
            shapes: specs of the inputs of each further program; the exported shapes are always included.
            batches: further batch sizes, of a program each.
            name: of the model; by default the graph's.
            files: further files: content by name.
            target: level (``avx512``, ``avx2``, ``sse``, ``neon``) that all target machines have; None for machines
                like this one.
            tag: write an OCI image layout that holds the bundle by this name, instead of the folder itself.
            replace: whether an existing bundle may be replaced.
            progress: called with the progress.
            cancelled: called between kernels, returns whether to stop.

        Returns:
            A row for each program: ``file``, ``inputs`` and ``bytes``.

        Raises:
            BundleError: the folder holds something else, or cannot be written.
            InputError: sizes are dynamic and no shapes are given, or the graph cannot run such a batch.
            CompileError: there is no compiler, or the level is unknown.
            RunCancelledError: ``cancelled`` returned true.
        """
        wanted = [*([] if self._batches.own is None else [self._batches.own]), *map(self._given_specs, shapes)]
        if not wanted:
            raise InputError("the graph has dynamic sizes", where="save_bundle", expected="shapes of its inputs")
        with cancelling(cancelled), write_bundle(Path(folder), tag, replace) as begin:
            writer = begin(self.graph, self.options, name or self.graph.name, files or {}, target)
            given = {each.name: getattr(self.options, each.name) for each in fields(self.options)}
            session = Session(writer.graph, **given)
            for specs in [*wanted, *(session._batches.with_batch(wanted[0], batch) for batch in batches)]:
                # Whole, also where this machine would run it in parts: how many threads there will be is not known.
                writer.add(*session._batches.graph_for(specs), progress or silent)
            session.close()
            manifest = writer.finish()
        return [each.describe() | {"bytes": manifest.files[each.file].bytes} for each in manifest.programs]

    def describe(self, cancelled: Callable[[], bool] | None = None) -> dict[str, Any]:
        """Return the graph's description together with how this session runs it.

        Nothing is compiled or run for it: kernels are listed if a run or ``prepare`` has compiled them.

        Args:
            cancelled: called between operators, returns whether to stop.

        Raises:
            RunCancelledError: ``cancelled`` returned true.
        """
        with cancelling(cancelled):
            description = self.graph.describe()
            self._executor.annotate(self.graph, self._batches.own, description)
            batch = self.batching.describe()
            return description | {"backend": self.backend, "threads": self.threads, "batch": batch}
