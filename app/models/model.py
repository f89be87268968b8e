"""Served version of a model: graph, session, preprocessing and task. Independent of HTTP and the event loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

import engine
from app.errors import ConfigError, InvalidRequestError, ServiceError
from app.images.placement import Placement
from app.images.preprocess import find_preprocessor
from app.memory.machine import budget_bytes
from app.memory.reservation import bounded, would_fit
from app.models.batch_size_tuning import tune
from app.models.batcher import Batcher
from app.models.folder.config import ModelConfig
from app.models.folder.layout import WARMUP
from app.models.inline_policy import InlinePolicy
from app.models.postprocessing import Postprocessing
from app.models.request import Decoded, InferRequest, InferResult, Prepared
from app.models.response_cache import open_cache
from app.models.runs import Runs
from app.models.sessions import open_session
from app.models.statistics import Timing, account
from app.models.verification import Verification
from app.models.warmup import example_inputs, partly_known, read_warmup
from app.settings import Settings
from app.signature import Inputs, Signature


class Model:
    """Execution of requests on one version of a model, for many threads at once.

    Attributes:
        batcher: runs several items, or several requests, together.
        runs, postprocessing: the steps of a request after ``prepare``.
        inline_policy: decides which requests run on the event loop.
        preprocessor: None if the model takes no pictures.
        response_cache: None if outputs are not cached.
        verification: None unless runs of several items are verified.
        remark: reason why the warm-up on zeros failed, or None.

    Args:
        name, graph, config, labels: as found in the store.
        threads: cores per run.
        settings: settings of the server.
        warmup: optional file of inputs for the warm-up; need not exist.

    Raises:
        ConfigError: config or warm-up file do not fit the graph.
        EngineError: the graph cannot run.
    """

    def __init__(
        self,
        name: str,
        graph: engine.RuntimeGraph,
        config: ModelConfig,
        labels: tuple[str, ...] | None,
        *,
        threads: int,
        settings: Settings,
        warmup: Path | None = None,
    ) -> None:
        self.name = name
        self.config = config
        # Labels of the config take precedence over those of the file.
        self.labels = labels = labels if labels is not None else graph.labels or None
        self._most_bytes = budget_bytes(settings.max_bytes_in_flight, settings.workers)
        self.session = open_session(graph, settings, min(config.threads or threads, threads), config.precision)
        self.batcher = Batcher(self.session, config.batching)
        self.inline_policy = InlinePolicy()
        self.preprocessor = find_preprocessor(graph.inputs, config.preprocess, settings)
        self.signature = Signature(
            inputs=graph.inputs,
            outputs=graph.outputs,
            picture_input=self.preprocessor.port.name if self.preprocessor is not None else None,
        )
        self.remark: str | None = None
        self._given = read_warmup(warmup, self.signature)
        self.postprocessing = Postprocessing(name, config, self.signature, labels, self.preprocessor)
        self.response_cache = open_cache(config.response_cache, graph)
        self.verification = Verification(name, graph) if settings.verify_batches else None
        self.runs = Runs(self.batcher, self.response_cache, self.verification)

    def infer(self, request: InferRequest, cancelled: Callable[[], bool] | None = None) -> InferResult:
        """Prepare, run and finish a request.

        Args:
            request: request to answer.
            cancelled: polled between operators; the run stops when it returns True.

        Raises:
            ServiceError, EngineError, ConfigError: see the three steps.
        """
        prepared = self.prepare(request)
        return self.postprocessing.finish(prepared, self.runs.run(prepared, cancelled))

    def decode(self, request: InferRequest) -> Decoded:
        """Return the inputs of a request, with pictures still encoded.

        Raises:
            ServiceError: the request does not fit the model.
        """
        start = time.perf_counter()
        return Decoded(request.decode(self.signature), time.perf_counter() - start)

    def prepare(self, request: InferRequest, decoded: Decoded | None = None) -> Prepared:
        """Decode, unless ``decoded`` is given, and preprocess.

        Raises:
            ServiceError: the request does not fit the model.
        """
        options = self.postprocessing.options(request)
        wanted = self.postprocessing.requested(request.outputs)
        decoded = self.decode(request) if decoded is None else decoded
        if request.draw:
            self.postprocessing.check_drawable(decoded.inputs)
        timing = Timing(decode_s=decoded.seconds)
        tensors, placements = self._tensors(decoded.inputs, timing)
        asked = account.get()
        return Prepared(
            request=request,
            inputs=decoded.inputs,
            tensors=tensors,
            placements=placements,
            options=options,
            wanted=wanted,
            timing=timing,
            request_id="-" if asked is None else asked.request_id,
        )

    def is_quick(self, request: InferRequest) -> bool:
        """Return whether a request of one item is expected to take less time than handing it to a thread."""
        return self.inline_policy.is_quick(request, self.batcher.verdict.latency_s.get(1))

    def is_light(self, inputs: Inputs) -> bool:
        """Return whether preprocessing these inputs is cheap."""
        return all(
            not isinstance(value, tuple) or (self.preprocessor is not None and self.preprocessor.is_light(value))
            for value in inputs.values()
        )

    def profile(self) -> list[dict[str, Any]]:
        """Return the measured time of each operator in one run, after one warm-up run.

        Raises:
            InvalidRequestError: no example inputs are known.
        """
        inputs = self.example_inputs()
        if inputs is None:
            raise InvalidRequestError(f"profile: {self.missing_example}, so there is nothing to run it on")
        self.session.run(inputs)
        return self.session.run(inputs, profile=True).profile or []

    def compile(
        self,
        batch: int | None = None,
        *,
        specs: Sequence[engine.TensorSpec] | None = None,
        refresh: bool = False,
        progress: engine.Progress | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> dict[str, Any] | None:
        """Compile for one item, a batch, or other shapes.

        Returns:
            Result of ``Session.prepare``; None if no specs are given and no inputs are known.

        Raises:
            EngineError: the model does not take such a batch, or cannot be compiled although it must.
        """
        if specs is None:
            inputs = self.example_inputs()
            if inputs is None:
                return None
            specs = [engine.TensorSpec(array.shape, array.dtype) for array in inputs.values()]
        given: dict[str, Any] = {"progress": progress, "cancelled": cancelled}
        return self.session.prepare(batch, specs=specs, refresh=refresh, **given)

    def warm_up(self, progress: engine.Progress | None = None, cancelled: Callable[[], bool] | None = None) -> bool:
        """Compile, and run once on the inputs in the model's folder or on zeros, including postprocessing.

        Also determines how batches are run; otherwise the first of them would wait. Zeros may be invalid inputs: the
        error
        then becomes the model's remark, unless the sizes given by the file itself are the reason.

        Args:
            progress: receives the progress of compiling.
            cancelled: polled between kernels and between operators.

        Returns:
            Whether it ran; False if the graph has dynamic sizes or rejects zeros.

        Raises:
            EngineError: the model cannot run, or the warm-up was cancelled.
            ConfigError: its outputs are not as configured, or it rejects the inputs in its folder.
        """
        inputs = self.example_inputs()
        if inputs is None:
            return False
        try:
            self._run_first(inputs, progress, cancelled)
        except engine.RunCancelledError:
            raise
        except (engine.EngineError, ServiceError) as error:
            if self._given is not None:
                raise ConfigError(f"{WARMUP}: {error}") from error
            if isinstance(error, ServiceError) or self.refuses_its_sizes(error):
                raise
            self.remark = f"the warm-up on zeros failed: {error}; {WARMUP} may have valid inputs"
            return False
        return True

    def _run_first(
        self,
        inputs: Mapping[str, NDArray[Any]],
        progress: engine.Progress | None,
        cancelled: Callable[[], bool] | None,
    ) -> None:
        self._check_memory(inputs)
        specs = [engine.TensorSpec(array.shape, array.dtype) for array in inputs.values()]
        with self.in_bounds():
            self.compile(specs=specs, progress=progress, cancelled=cancelled)
            request = InferRequest(decode=lambda _: dict(inputs), parameters={})
            self.inline_policy.measure(partial(self.infer, request, cancelled))
            if cancelled is None or not cancelled():
                self.batcher.learn(inputs)

    def refuses_its_sizes(self, error: engine.EngineError) -> bool:
        """Return whether an error means that no request can succeed, because the sizes in the file do not fit."""
        specs = [port.spec for port in self.signature.inputs if port.spec is not None and port.spec.is_static]
        if len(specs) < len(self.signature.inputs):
            return False
        try:
            self.session.graph.infer(specs)
        except engine.EngineError:
            return True
        return isinstance(error, engine.CompileError)

    def in_bounds(self) -> AbstractContextManager[None]:
        """Return a context that bounds the memory of internal runs as for requests."""
        return bounded(self._most_bytes)

    def tune_batching(self) -> None:
        """Determine by measurement, once there are requests, in which batch sizes the model runs best.

        Nothing is measured for a model that was not warmed up: its sizes are dynamic.
        """
        if self.inline_policy.run_s is not None and not self.batcher.verdict.is_final:
            tune(self.batcher, self.inline_policy.run_s)

    def _check_memory(self, inputs: Mapping[str, NDArray[Any]]) -> None:
        needed = sum(array.nbytes for array in inputs.values()) + self.session.estimate_bytes(inputs)
        there_is = engine.total_memory_bytes()
        if needed > there_is:
            raise ConfigError(f"a run of one item takes some {needed:,} bytes, expected at most {there_is:,}")

    def example_inputs(self) -> dict[str, NDArray[Any]] | None:
        """Return the inputs in the model's folder, or zeros for one item; None if no valid inputs are known.

        None are known if graph and config leave a size dynamic, or if the model has rejected zeros.
        """
        if self._given is not None:
            return dict(self._given)
        return None if self.remark is not None else example_inputs(self.signature.inputs, self.preprocessor)

    @property
    def missing_example(self) -> str:
        """Return the reason why ``example_inputs`` has none, for messages."""
        return "the model rejects zeros" if self.remark is not None else "the size of the model's input is dynamic"

    def partly_known(self, specs: Sequence[engine.TensorSpec]) -> list[engine.TensorSpec]:
        """Return the specs of the inputs with sizes from the config filled in."""
        return partly_known(self.signature.inputs, specs, self.preprocessor)

    def _tensors(self, inputs: Inputs, timing: Timing) -> tuple[dict[str, NDArray[Any]], tuple[Placement, ...]]:
        tensors: dict[str, NDArray[Any]] = {}
        placements: tuple[Placement, ...] = ()
        for name, value in inputs.items():
            if not isinstance(value, tuple):
                tensors[name] = value
            elif self.preprocessor is not None:
                prepared = self.preprocessor(value, partial(self._admit, inputs, name))
                tensors[name], placements = prepared.tensor, prepared.placements
                timing.decode_s += prepared.decode_s
                timing.preprocess_s += prepared.preprocess_s
        return tensors, placements

    def _admit(self, inputs: Inputs, name: str, batch: NDArray[Any]) -> None:
        """Reject a run that will not fit in memory before its pictures are decoded; their sizes are known already."""
        known = {other: value for other, value in inputs.items() if not isinstance(value, tuple)}
        would_fit(self.session.estimate_bytes({**known, name: batch}))
