"""A graph made ready to run: what a program or a server holds."""

from __future__ import annotations

import copy
import functools
import os
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from engine.errors import EngineError, ExecutionError, InputError, from_foreign
from engine.executor import Executor, write_bundle
from engine.graph import RuntimeGraph, execute
from engine.graph.batch.batching import Batching, aligned, decide, is_other_batch, refuse, split
from engine.graph.footprint import Footprints
from engine.graph.port import static_specs
from engine.graph.running.feeding import feed
from engine.graph.running.watch import Watch
from engine.options import CACHE_MAX_BYTES, Backend, Options, Winograd, cache_folder
from engine.profiling import MeasuredRun, join_kernels, join_rows, measured
from engine.progress import Progress, silent
from engine.routes import Given, Known, Route, places_in, shapes_of
from engine.stopping import cancelling
from engine.tensor import Array, TensorSpec, format_shape

T = TypeVar("T")

# What is known of shapes is small; a client that sends ever new ones must not make it much.
_MAX_KNOWN: Final = 256


class Outputs(list[Array]):
    """The outputs of a run, in graph order.

    Args:
        arrays: the output tensors.
        names: ``out0``, ``out1``, ...
        profile: one entry an operator in execution order, with its time in µs; None unless asked for.
        kernels: one entry a kernel of machine code in the order they ran; empty unless profiled.
        taps: value of every tapped operand by name.
        peak_bytes: bytes of intermediate values alive at once; None unless the run was profiled.
        buffers: one entry a piece of memory that held values, of a profiled run that was not split: where it began, its
            bytes, the operands in it, and the first and last of the kernels (of the profile's entries, where the
            reference ran) between which it was somebody's.
    """

    def __init__(
        self,
        arrays: Sequence[Array],
        names: Sequence[str],
        profile: list[dict[str, Any]] | None = None,
        taps: Mapping[str, Any] | None = None,
        peak_bytes: int | None = None,
    ) -> None:
        super().__init__(arrays)
        self.names = tuple(names)
        self.profile = profile
        self.kernels: list[dict[str, Any]] = []
        self.taps = dict(taps or {})
        self.peak_bytes = peak_bytes
        self.buffers: list[dict[str, Any]] = []

    def asdict(self) -> dict[str, Array]:
        """The outputs by name."""
        return dict(zip(self.names, self, strict=True))


class Session:
    """Runs a graph; many threads may call it at once.

    Args:
        graph: a built graph; editing it later changes nothing in this session.
        backend: ``reference`` runs every operator's numpy layer. ``compiled`` runs machine code, made when shapes are
            first met, and the layers of the operators there is no kernel for. ``auto`` is ``compiled``, and the
            reference where nothing can be compiled; for a graph of many operators that the cache does not have, until
            it is compiled in the background, unless ``prepare`` has; and for shapes other than the file's until code
            for them is made: those that come again are compiled there, one after the other.
        threads: cores one run may use; None for all this process may use.
        winograd: ``auto``, or ``off`` for convolutions that are summed directly: slower, and closer to the reference.
        passes_off: names of the graph optimisations to leave out; see docs/passes.md.
        cache: folder where machine code is kept, and found by the next process. ``auto`` is ``pnnx-serve`` in the
            user's folder for caches; None compiles anew in every process.
        cache_max_bytes: of all that is kept there; what was not used for longest goes first.
        measure_host: whether the machine is measured, in a few tenths of a second and once where there is a cache, and
            kernels are chosen for it; else they are chosen for what is usual of its kind.
        instances_max_bytes: of memory for machine code, weights and values of other shapes than the file's, in all
            sessions of the process together; shapes that are met less often run on the reference. None is a quarter
            of the memory there is.

    Raises:
        ParameterError: an option that cannot be, as ``Options`` has it.
        GraphError: the graph is not built.
    """

    def __init__(
        self,
        graph: RuntimeGraph,
        backend: Backend = "auto",
        threads: int | None = None,
        *,
        winograd: Winograd = "auto",
        passes_off: Collection[str] = (),
        cache: str | os.PathLike[str] | None = "auto",
        cache_max_bytes: int = CACHE_MAX_BYTES,
        measure_host: bool = True,
        instances_max_bytes: int | None = None,
    ) -> None:
        self.graph = copy.copy(graph)  # as it is now: editing the caller's changes nothing here
        self.options = Options(
            backend=backend,
            threads=threads,
            winograd=winograd,
            passes_off=frozenset(passes_off),
            cache=cache_folder(cache),
            cache_max_bytes=cache_max_bytes,
            measure_host=measure_host,
            instances_max_bytes=instances_max_bytes,
        )
        self._executor = Executor(self.options)
        self._lock = threading.Lock()
        self._batching: Batching | None = None
        self._own = static_specs(graph.inputs)
        self._footprints: dict[tuple[Any, ...], Known] = {}
        self._routes: dict[tuple[Any, ...], Route] = {}
        _ = graph.plan  # a graph that is not built is refused here

    @property
    def threads(self) -> int | None:
        """Cores one run may use; None for all this process may use."""
        return self.options.threads

    @property
    def backend(self) -> str:
        """What runs the graph: ``compiled`` or ``reference``."""
        return "compiled" if self._executor.compiles else "reference"

    def close(self) -> None:
        """Give back the memory and the threads of what was compiled; a run that comes later makes it anew."""
        self._executor.close()

    @property
    def compile_failure(self) -> str | None:
        """Why the reference runs a graph that should be compiled; None while nothing has failed."""
        return self._executor.failure

    def run(
        self,
        inputs: Given,
        profile: bool = False,
        *,
        taps: Iterable[str] = (),
        cancelled: Callable[[], bool] | None = None,
    ) -> Outputs:
        """Compute the graph's outputs.

        Args:
            inputs: array-likes in graph order, or by name; a fixed first dimension may be any batch size.
            profile: also measure every operator.
            taps: names of operands whose values are returned too, in ``taps`` of the result; such a run is the
                reference's, for machine code does not make every operand.
            cancelled: asked before every operator, and every some milliseconds of machine code; when it says yes the
                run stops with RunCancelledError.

        Returns:
            The outputs in graph order; they share no memory with the inputs or each other.

        Raises:
            InputError: the inputs do not fit the graph.
            CompileError: backend ``compiled`` and nothing can be compiled.
            EngineError: an operator refuses or fails; names the operator.
        """
        try:
            with cancelling(cancelled):
                return self._run_any(inputs, profile, tuple(taps))
        except EngineError:
            raise
        except Exception as exc:  # a net below every check: no caller meets anything but an EngineError
            raise from_foreign(exc, ExecutionError, "the run failed", self.graph.name) from exc

    def _run_any(self, inputs: Given, profile: bool, taps: tuple[str, ...]) -> Outputs:
        if profile or taps:
            return self._run_watched(inputs, profile, taps)
        key = shapes_of(inputs)
        route = None if key is None else self._routes.get(key)
        if route is None:
            return self._run_new(inputs, key)
        given: Any = [inputs] if isinstance(inputs, np.ndarray) else inputs
        arrays = [given[place] for place in route.places]
        if route.again is not None and self._executor.compiles:
            results = route.again.run(arrays)
            if results is not None:
                return _outputs(results)
        return _outputs(self._executor.run(route.graph, arrays, None))

    def _run_new(self, inputs: Given, key: tuple[Any, ...] | None) -> Outputs:
        """Run inputs of shapes that have not passed all checks before, or that run in parts."""
        ran: list[tuple[RuntimeGraph, Sequence[Array]]] = []

        def run_graph(graph: RuntimeGraph, part: Sequence[Array]) -> list[Array]:
            ran.append((graph, part))
            return self._executor.run(graph, part, None)

        outputs = _outputs(self._run(feed(self.graph.inputs, inputs), run_graph))
        if key is not None and len(ran) == 1 and (places := places_in(inputs, ran[0][1])) is not None:
            graph, arrays = ran[0]
            again = self._executor.again(graph, [TensorSpec(array.shape, array.dtype) for array in arrays])
            self._remember(self._routes, key, Route(graph, places, again))
        return outputs

    def _run_watched(self, inputs: Given, profile: bool, taps: tuple[str, ...]) -> Outputs:
        runs: list[MeasuredRun] | None = [] if profile else None
        watches: list[Watch] = []

        def run_graph(graph: RuntimeGraph, part: Sequence[Array]) -> list[Array]:
            if not taps:
                return self._executor.run(graph, part, runs)
            watch = Watch(graph.plan, taps=taps, measured=profile)
            watches.append(watch)
            results = execute(graph.plan, part, watch)
            if runs is not None:
                runs.append(measured(watch))
            return results

        outputs = _outputs(self._run(feed(self.graph.inputs, inputs), run_graph))
        outputs.taps = _join_taps(watches, taps)
        if runs is not None:
            outputs.profile, outputs.kernels = join_rows(runs), join_kernels(runs)
            outputs.peak_bytes = max(run.peak_bytes for run in runs)
            outputs.buffers = runs[0].buffers if len(runs) == 1 else []
        return outputs

    def estimate_bytes(self, inputs: Given) -> int:
        """What a run on these inputs takes beside them, at most, as far as shapes tell; worked out once for each shape.

        Where machine code for these shapes is there, so is its memory, and only the outputs are new. Nothing is
        compiled to find out.

        Args:
            inputs: as for ``run``; nothing is computed.

        Raises:
            InputError: the inputs do not fit the graph.
        """
        known = self._known(inputs)
        outputs = known.parts * known.footprint.outputs
        if self._holds(known):
            return outputs
        return known.footprint.peak + (outputs if known.parts > 1 else 0)

    def is_compiled(self, inputs: Given) -> bool:
        """Whether a run on these inputs finds the machine code it needs; else it compiles, or is the reference's.

        Raises:
            InputError: the inputs do not fit the graph.
        """
        return self._holds(self._known(inputs))

    def _holds(self, known: Known) -> bool:
        if known.again is not None:
            return self._executor.compiles and known.again.is_held
        return self._executor.holds(known.graph, known.specs)

    def wish(self, inputs: Given) -> None:
        """Have code made in the background for inputs of these shapes, if they are met more than once.

        Raises:
            InputError: the inputs do not fit the graph.
        """
        known = self._known(inputs)
        self._executor.wish(known.graph, known.specs)

    def note(self, specs: Sequence[TensorSpec], subject: str) -> bytes | None:
        """What ``keep`` kept, in this process or an earlier one, of this graph run in this way on such a machine."""
        return self._executor.note(self.graph, specs, subject)

    def keep(self, specs: Sequence[TensorSpec], subject: str, content: bytes) -> None:
        """Keep something that was found out, in the cache of what is compiled; nothing where there is none.

        Args:
            specs: of the inputs it is about.
            content: at most 64 kB.
        """
        self._executor.keep(self.graph, specs, subject, content)

    def discard(self, specs: Sequence[TensorSpec]) -> None:
        """Give back the memory of what was compiled for inputs of these shapes; those of the file stay.

        Raises:
            InputError: the graph takes no such batch.
        """
        graph, known = self._graph_for(list(specs))
        if known != self._own:
            self._executor.discard(graph, known)

    def _known(self, inputs: Given) -> Known:
        key = shapes_of(inputs)
        known = None if key is None else self._footprints.get(key)
        if key is not None and known is not None and known.again is None and self._executor.compiles:
            # Nothing was compiled when it was asked for first.
            known = known._replace(again=self._executor.again(known.graph, known.specs))
            self._remember(self._footprints, key, known)
        if known is None:
            arrays = feed(self.graph.inputs, inputs)
            known = self._footprint([TensorSpec(array.shape, array.dtype) for array in arrays])
            if key is not None and self._is_settled:
                self._remember(self._footprints, key, known)
        return known

    def _remember(self, table: dict[tuple[Any, ...], T], key: tuple[Any, ...], known: T) -> None:
        with self._lock:
            if len(table) >= _MAX_KNOWN:
                table.clear()
            table[key] = known

    def _footprint(self, specs: list[TensorSpec]) -> Known:
        graph, of_part = self._graph_for(specs)
        sizes = [
            (spec.shape[0] or 0, part.shape[0] or 1) for spec, part in zip(specs, of_part, strict=True) if spec.shape
        ]
        parts = max((-(-whole // part) for whole, part in sizes), default=1)
        return Known(graph, of_part, Footprints(graph).of(of_part), parts, self._executor.again(graph, of_part))

    def prepare(
        self,
        batch: int | None = None,
        *,
        specs: Sequence[TensorSpec] | None = None,
        refresh: bool = False,
        tune: bool = False,
        progress: Progress | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> dict[str, Any] | None:
        """Compile now what runs of the exported shapes, or of others, will need.

        Args:
            batch: another batch size than theirs.
            specs: of the inputs, in graph order; the exported ones without it.
            refresh: compile even what was compiled before, here or in the cache.
            tune: the same, with the best candidates for each kernel measured against each other on this machine, which
                takes some seconds; which of them is fastest is kept beside the cache, for all that is compiled later.
            progress: told how far it is.
            cancelled: asked between kernels, and the like, whether it is no longer wanted.

        Returns:
            What was made, as plain data, see docs/graph.md; None on the reference, and where sizes are open.

        Raises:
            InputError: the graph takes no such batch.
            CompileError: backend ``compiled`` and nothing can be compiled.
            RunCancelledError: ``cancelled`` said so.
        """
        wanted = [port.spec for port in self.graph.inputs] if specs is None else specs
        known = [spec for spec in wanted if spec is not None]
        if batch is not None and len(known) == len(wanted):
            known = self._with_batch(known, batch)
        if self.options.backend == "reference" or len(known) != len(wanted) or not all(s.is_static for s in known):
            return None
        with cancelling(cancelled):
            graph, known = self._graph_for(known, compiling=True)
            return self._executor.prepare(graph, known, refresh=refresh, tune=tune, progress=progress or silent)

    def carries(self, specs: Sequence[TensorSpec]) -> bool:
        """Whether the bundle the graph came from has a program for inputs of these shapes; no where it is a pair.

        Raises:
            InputError: the graph takes no such batch.
        """
        return self.graph.bundle is not None and self._executor.carries(*self._graph_for(list(specs)))

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
        """Write a folder that ``engine.load`` takes for the model: the pair, and what is compiled of it now.

        A process that loads it on such a machine, with the same engine, needs no compiler for these shapes.

        Args:
            folder: where; appears whole or not at all.
            shapes: specs of the inputs, of each program; that of the exported shapes is always there.
            batches: other batch sizes than the exported one, of a program each.
            name: of the model; the graph's own without it.
            files: what else goes with it: content by name.
            target: level (``avx512``, ``avx2``, ``sse``, ``neon``) whose every machine is to run it; None for machines
                such as this one.
            tag: write an OCI image layout that holds the bundle by this name, instead of the folder itself.
            replace: whether a bundle that is there may be replaced.
            progress: told how far it is.
            cancelled: asked between kernels, and the like, whether it is no longer wanted.

        Returns:
            A row for each program: ``file``, ``inputs`` and ``bytes``.

        Raises:
            BundleError: the folder holds something else, or cannot be written.
            InputError: sizes are open and no shapes are given, or the graph takes no such batch.
            CompileError: there is no compiler, or no such level.
            RunCancelledError: ``cancelled`` said so.
        """
        wanted = [*([] if self._own is None else [self._own]), *map(list, shapes)]
        if not wanted:
            raise InputError("the graph leaves sizes open", where="a bundle", expected="shapes of its inputs")
        with cancelling(cancelled), write_bundle(Path(folder), tag, replace) as begin:
            writer = begin(self.graph, self.options, name or self.graph.name, files or {}, target)
            given = {each.name: getattr(self.options, each.name) for each in fields(self.options)}
            session = Session(writer.graph, **given)
            for specs in [*wanted, *(session._with_batch(wanted[0], batch) for batch in batches)]:
                writer.add(*session._graph_for(specs, compiling=target is None), progress or silent)
            session.close()
            manifest = writer.finish()
        return [each.describe() | {"bytes": manifest.files[each.file].bytes} for each in manifest.programs]

    def _graph_for(self, specs: list[TensorSpec], compiling: bool = False) -> tuple[RuntimeGraph, list[TensorSpec]]:
        """The graph that runs inputs of these specs, and the specs of a part where it runs them in parts.

        Args:
            compiling: whether to compile what tells how another batch than the exported one runs.
        """
        ports = [port.spec for port in self.graph.inputs]
        if all(port is None or _is_same(port, spec) for port, spec in zip(ports, specs, strict=True)):
            return self.graph, specs
        if self.batching.mode == "fixed":
            problem = f"the graph takes no other batch ({self.batching.reason})"
            raise InputError(problem, found=format_shape(specs[0].shape))
        batch = specs[0].shape[self.batching.inputs[0]] or 0
        if self.batching.graph is not None and not self._prefers_parts(batch, compiling):
            return self.batching.graph, self.batching.specs(specs, batch)
        return self.graph, self.batching.specs(specs, self.batching.exported)

    def _with_batch(self, specs: list[TensorSpec], batch: int) -> list[TensorSpec]:
        """Specs of the inputs with another batch than the file's."""
        ports = [port.spec for port in self.graph.inputs]
        first = ports[0].shape[:1] if ports and ports[0] is not None else ()
        return specs if first == (batch,) else self.batching.specs(specs, batch)

    def _prefers_parts(self, batch: int, compiling: bool) -> bool:
        """Whether machine code runs a batch faster in parts of the exported size, where they can be joined.

        Args:
            compiling: whether to compile for the exported shapes, which tells; without it the answer is no until it is.
        """
        exported, own = self.batching.exported, self._own
        if own is None or not exported or not batch or batch % exported or not self._can_join:
            return False
        if compiling and not self._is_settled:
            self._executor.prepare(self.graph, own)
        return self._executor.prefers_parts(self.graph, own, batch // exported)

    @property
    def _is_settled(self) -> bool:
        """Whether the code for the exported shapes is there, or never will be."""
        return self._own is None or not self._executor.compiles or self._executor.holds(self.graph, self._own)

    @property
    def _can_join(self) -> bool:
        """Whether parts of a batch can be joined: the file says of every output how long its batch is."""
        outputs, axes = [port.spec for port in self.graph.outputs], self.batching.outputs
        if axes is None or len(axes) != len(outputs):
            return False
        exported = self.batching.exported
        return all(
            axis is None or (spec is not None and axis < spec.rank and spec.shape[axis] == exported)
            for spec, axis in zip(outputs, axes, strict=True)
        )

    def describe(self, cancelled: Callable[[], bool] | None = None) -> dict[str, Any]:
        """The graph's description together with how this session runs it.

        Nothing is compiled to find out: kernels are told of what was, by a run or by ``prepare``. How other batches run
        is tried on the reference, if that has not happened yet.

        Args:
            cancelled: asked between operators, and the like, whether it is no longer wanted.

        Raises:
            RunCancelledError: ``cancelled`` said so.
        """
        with cancelling(cancelled):
            description = self.graph.describe()
            self._executor.annotate(self.graph, self._own, description)
            batch = self.batching.describe()
            return description | {"backend": self.backend, "threads": self.threads, "batch": batch}

    def _run(
        self, arrays: list[Array], run_graph: Callable[[RuntimeGraph, Sequence[Array]], list[Array]]
    ) -> list[Array]:
        if not is_other_batch(self.graph.inputs, arrays):
            return run_graph(self.graph, arrays)
        batching = self.batching
        if batching.mode == "fixed":
            raise refuse(batching, self.graph.inputs, arrays)
        arrays = aligned(batching, self.graph.inputs, arrays)
        if batching.graph is not None and not self._prefers_parts(arrays[0].shape[batching.inputs[0]], compiling=True):
            return run_graph(batching.graph, arrays)
        run_part: Callable[[Sequence[Array]], list[Array]] = lambda part: run_graph(self.graph, part)  # noqa: E731
        return split(arrays, batching.exported or 1, batching.inputs, batching.outputs or (), run_part)

    @property
    def batching(self) -> Batching:
        """How batches other than the exported one run; found out when first asked, by trying a batch of two."""
        with self._lock:
            if self._batching is None:
                self._batching = decide(self.graph)
                self._executor.give_back(self.graph)
            return self._batching


def _outputs(arrays: Sequence[Array]) -> Outputs:
    return Outputs(arrays, _names(len(arrays)))


@functools.cache
def _names(count: int) -> tuple[str, ...]:
    return tuple(f"out{index}" for index in range(count))


def _is_same(port: TensorSpec, spec: TensorSpec) -> bool:
    """Whether a spec is as the file has it, in the dimensions that may hold a batch."""
    return all(dim in (None, size) for size, dim in zip(spec.shape[:2], port.shape[:2], strict=False))


def _join_taps(watches: Sequence[Watch], taps: Sequence[str]) -> dict[str, Any]:
    """Values of the tapped operands; a list of them, one a part, where the batch was split."""
    if len(watches) == 1:
        return watches[0].taps
    return {name: [watch.taps[name] for watch in watches] for name in taps}
