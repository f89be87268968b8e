"""Served version of a model: graph, session, preprocessing and task; and a request to it, as the scheduler takes it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

import engine
from app.content import ContentRun, Converter
from app.errors import ConfigError, InputMismatchError, InvalidRequestError, ServiceError
from app.hooks.loading import open_hooks
from app.images.preprocess import find_preprocessor
from app.memory.machine import budget_bytes
from app.memory.reservation import bounded, would_fit
from app.models.batcher import Batcher, tune
from app.models.folder.config import ModelConfig
from app.models.folder.layout import WARMUP
from app.models.folder.repository import VersionFiles
from app.models.inline_policy import InlinePolicy
from app.models.postprocessing import Postprocessing
from app.models.recorder import open_recorder
from app.models.request import Decoded, InferRequest, InferResult, Prepared, Ran, requested_outputs
from app.models.response_cache import open_cache
from app.models.runs import Runs, Verification
from app.models.sequences import Sequences
from app.models.servable import BatchAxes
from app.models.sessions import open_session
from app.models.states import Steps
from app.models.statistics import Timing, account
from app.models.warmup import example_inputs, partly_known, read_warmup
from app.scheduling.job import RunSpec
from app.settings import Settings
from app.signature import Inputs, Kind, Signature
from app.sound.inputs import open_sound_inputs
from app.sound.sound import Sounds
from app.tasks.registry import find_task
from app.tasks.task import TaskContext
from app.text.inputs import open_text_inputs
from app.text.text import Texts

# What a converter takes, by the type of the value of an input.
_KINDS: Final[Mapping[type, Kind]] = {tuple: "picture", Texts: "text", Sounds: "sound"}
_QUANTISING: Final = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "torch.quantize_per_tensor")
T = TypeVar("T")


class Model:
    """Execution of requests on one version of a model, for many threads at once.

    Attributes:
        batcher: runs several items, or several requests, together.
        runs, postprocessing: the steps of a request after ``prepare``.
        inline_policy: decides which requests run on the event loop.
        preprocessor: None if the model takes no pictures.
        text_inputs: None if the model takes no texts.
        sound_inputs: None if the model takes no sounds.
        steps, sequences: None if the model has no states.
        hooks: None without hooks.py.
        response_cache: None if outputs are not cached.
        recorder: None unless requests are recorded; never for a model with states.
        verification: None unless runs of several items are verified.
        remark: reason why the warm-up on zeros failed, or None.

    Args:
        name, graph, config, labels, words: as found in the store.
        threads: cores per run.
        settings: settings of the server.
        files: those of the version. Files for the warm-up, tokenizer and hooks need not exist, unless the task takes
            texts.

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
        words: tuple[str, ...] | None = None,
        files: VersionFiles,
    ) -> None:
        self.name = name
        self.task = config.task
        self.config = config
        # Labels of the config take precedence over those of the file.
        self.labels = labels = labels if labels is not None else graph.labels or None
        self._most_bytes = budget_bytes(settings.max_bytes_in_flight, settings.workers)
        self.session = open_session(graph, settings, min(config.threads or threads, threads), config.precision)
        self.stored_precision = _stored_precision(graph)
        self.batcher = Batcher(self.session, config.batching)
        self.inline_policy = InlinePolicy()
        task = find_task(config.task)
        self.steps = Steps(self.session, config.states, graph.inputs, graph.outputs) if config.states else None
        self.sequences = None if self.steps is None else Sequences(config.sequences, self.steps.state_bytes)
        self.sound_inputs = open_sound_inputs(
            [port for port in graph.inputs if self.steps is None or port.name not in self.steps.inputs],
            config.sound,
            is_required=task.TAKES is Sounds,
            max_seconds=settings.max_sound_s,
            open_session=lambda features: open_session(features, settings, threads=1),
            is_stepwise=self.steps is not None,
        )
        takes_pictures = self.sound_inputs is None or config.preprocess is not None
        self.preprocessor = find_preprocessor(graph.inputs, config.preprocess, settings) if takes_pictures else None
        self.text_inputs = open_text_inputs(graph.inputs, files.tokenizer, config.text, is_required=task.TAKES is Texts)
        known: dict[type, Converter | None] = {
            tuple: self.preprocessor, Texts: self.text_inputs, Sounds: self.sound_inputs
        }  # fmt: skip
        self._converters = {kind: each for kind, each in known.items() if each is not None}
        self.signature = Signature(
            inputs=graph.inputs,
            outputs=graph.outputs,
            contents={each.port.name: _KINDS[kind] for kind, each in self._converters.items()},
            states=frozenset() if self.steps is None else self.steps.inputs,
        )
        self.remark: str | None = None
        self._given = read_warmup(files.warmup, self.signature)
        tokens = None if self.text_inputs is None else self.text_inputs.tokenizer
        context = TaskContext(signature=self.signature, labels=labels, tokenizer=tokens, words=words)
        self.hooks = open_hooks(files.hooks, name, settings.plugins)
        self.postprocessing = Postprocessing(name, config, context, self.preprocessor, self.hooks)
        self.response_cache = open_cache(config.response_cache, graph)
        self.recorder = open_recorder(settings, name, files.number) if self.steps is None else None
        self.verification = Verification(name, graph) if settings.verify_batches else None
        self.runs = Runs(self.batcher, self.response_cache, self.verification, self.steps)

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
        options = self.postprocessing.options(request.parameters)
        wanted = requested_outputs(self.signature, request.outputs)
        decoded = self.decode(request) if decoded is None else decoded
        if request.draw:
            self.postprocessing.check_drawable(decoded.inputs)
        timing = Timing(decode_s=decoded.seconds)
        asked = account.get()
        known: dict[str, Any] = {
            "request": request, "inputs": decoded.inputs, "options": options, "wanted": wanted, "timing": timing,
            "request_id": "-" if asked is None else asked.request_id,
        }  # fmt: skip
        first, *rest = [
            Prepared(tensors=run.tensors, contents=run.contents, indices=run.indices, **known)
            for run in self._converted(decoded.inputs, timing)
        ]
        if rest and wanted:
            raise InputMismatchError(
                f"outputs: found texts or sounds of {1 + len(rest)} lengths, expected those of one run where raw"
                " outputs are requested"
            )
        first.rest = tuple(rest)
        return first

    def _converted(self, inputs: Inputs, timing: Timing) -> list[ContentRun]:
        """Return the runs for the inputs of a request: one for tensors.

        Raises:
            ServiceError: pictures, texts or sounds cannot be converted.
        """
        start = time.perf_counter()
        tensors = {name: value for name, value in inputs.items() if isinstance(value, np.ndarray)}
        others = [value for value in inputs.values() if not isinstance(value, np.ndarray)]
        if not others:
            return [ContentRun(tensors, (), ())]
        converter = self._converters[type(others[0])]  # the signature has an input for it
        runs, decode_s = converter.convert(others[0], partial(self._admit, tensors, converter.port.name))
        timing.decode_s += decode_s
        timing.preprocess_s += time.perf_counter() - start - decode_s
        return [run._replace(tensors={**tensors, **run.tensors}) for run in runs]

    def _admit(self, tensors: Mapping[str, NDArray[Any]], name: str, batch: NDArray[Any]) -> None:
        """Reject a run that will not fit in memory before its pictures are decoded; their sizes are known already."""
        would_fit(self.session.estimate_bytes({**tensors, name: batch}))

    def is_quick(self, request: InferRequest) -> bool:
        """Return whether a request of one item is expected to take less time than handing it to a thread.

        Hooks always run in threads: they may take any time.
        """
        return self.hooks is None and self.inline_policy.is_quick(request, self.batcher.verdict.latency_s.get(1))

    def is_light(self, inputs: Inputs) -> bool:
        """Return whether preprocessing these inputs is cheap."""
        return all(
            isinstance(value, np.ndarray) or self._converters[type(value)].is_light(value) for value in inputs.values()
        )

    @property
    def precision(self) -> str:
        """Return the precision that the files give layers, else that of the session's products."""
        return self.stored_precision or self.session.options.precision

    @property
    def finding(self) -> Any:
        """Return the type of the prediction for one item, None without predictions."""
        return self.postprocessing.finding

    @property
    def parameters(self) -> Mapping[str, str]:
        """Return the parameters of a request, with their descriptions."""
        return self.postprocessing.parameters

    @property
    def can_draw(self) -> bool:
        """Return whether predictions can be drawn."""
        return self.postprocessing.can_draw

    @property
    def batch_axes(self) -> BatchAxes:
        """Return the dimensions that hold the batch, where other sizes than the file's are allowed."""
        batching = self.session.batching
        return (batching.inputs, batching.outputs or ()) if batching.mode != "fixed" else ((), ())

    @property
    def run_items(self) -> int:
        """Return the largest number of items that one run should have."""
        return self.batcher.config.most

    def check_parameters(self, parameters: Mapping[str, Any]) -> None:
        """Raise unless a request may have these parameters.

        Raises:
            InvalidRequestError: a parameter is unknown, or its value is out of range.
        """
        self.postprocessing.options(parameters)

    def describe(self) -> dict[str, Any]:
        """Return the operators of the graph, and how they run."""
        return self.session.describe()

    def call(self, request: InferRequest, encode: Callable[[InferResult], T]) -> Call[T]:
        """Return the steps of a request for the scheduler."""
        return Call(self, request, encode)

    def use(self) -> None:
        """Note that a request was answered, and start pending batch-size tuning."""
        self.batcher.use()

    def forget(self) -> None:
        """Drop cached outputs and sequences, and keep no more, because another version takes over."""
        if self.response_cache is not None:
            self.response_cache.close()
        if self.sequences is not None:
            self.sequences.close()

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
        error then becomes the model's remark, unless the sizes given by the file itself are the reason.

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
            with self.in_bounds():
                self.session.prepare(progress=progress, cancelled=cancelled)
            return False
        try:
            self._run_first(inputs, progress, cancelled)
        except engine.RunCancelledError:
            raise
        except (engine.EngineError, ServiceError) as error:
            if self._given is not None:
                raise ConfigError(f"{WARMUP}: {error}") from error
            if self._is_fatal(error):
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
        if self.sound_inputs is not None:
            self.sound_inputs.prepare()
        specs = [engine.TensorSpec(array.shape, array.dtype) for array in inputs.values()]
        with self.in_bounds():
            self.compile(specs=specs, progress=progress, cancelled=cancelled)
            request = InferRequest(decode=lambda _: dict(inputs), parameters={})
            examples = self._examples()
            for others in examples[1:]:
                of_others = [engine.TensorSpec(array.shape, array.dtype) for array in others.tensors.values()]
                self.compile(specs=of_others, progress=progress, cancelled=cancelled)
            contents = examples[0] if examples and self._given is None else ContentRun({}, (), ())
            self.inline_policy.measure(partial(self._infer_example, request, contents, cancelled))
            if self._shares_runs and (cancelled is None or not cancelled()):
                is_batched = self.batcher.learn(inputs)
                if not is_batched and self.sound_inputs is not None:
                    self.sound_inputs.run_singly()

    def _is_fatal(self, error: engine.EngineError | ServiceError) -> bool:
        """Return whether an error of the warm-up on zeros means that no request can succeed."""
        if isinstance(error, ServiceError):
            return self.hooks is None  # hooks may refuse what zeros give
        return self.refuses_its_sizes(error)

    def _infer_example(
        self, request: InferRequest, example: ContentRun, cancelled: Callable[[], bool] | None
    ) -> InferResult:
        """Answer a request for tensors as one for the contents that the tensors were made of, predictions included."""
        prepared = self.prepare(request)
        prepared.contents, prepared.indices = example.contents, example.indices
        return self.postprocessing.finish(prepared, self.runs.run(prepared, cancelled))

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
        run_s = self.inline_policy.run_s if self._shares_runs else None
        if run_s is not None and not self.batcher.verdict.is_final:
            tune(self.batcher, run_s)

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
            return dict(self._given) if self.steps is None else self.steps.example(self._given)
        if self.remark is not None:
            return None
        if examples := self._examples():
            return examples[0].tensors
        return example_inputs(self.signature.inputs, self.preprocessor)

    def _examples(self) -> list[ContentRun]:
        """Return the runs to compile for where zeros of the file's shape will not do."""
        found = [example for converter in self._converters.values() for example in converter.examples()]
        if self.steps is None:
            return found
        return [each._replace(tensors=self.steps.example(each.tensors)) for each in found]

    @property
    def _shares_runs(self) -> bool:
        """Return whether requests may share runs: their rows have one shape, and run in any order."""
        return self.steps is None and all(converter.has_fixed_size for converter in self._converters.values())

    @property
    def missing_example(self) -> str:
        """Return the reason why ``example_inputs`` has none, for messages."""
        return "the model rejects zeros" if self.remark is not None else "the size of the model's input is dynamic"

    def partly_known(self, specs: Sequence[engine.TensorSpec]) -> list[engine.TensorSpec]:
        """Return the specs of the inputs with sizes from the config filled in."""
        return partly_known(self.signature.inputs, specs, self.preprocessor)


def _stored_precision(graph: engine.RuntimeGraph) -> str | None:
    """Return the precision of layers by the files: ``int8``, ``bf16``, ``auto`` for both, ``intN-weights``, or None."""
    has_int8 = any(op.type in _QUANTISING or op.params.get("rounds") for op in graph.operators)
    if any(op.allows_bfloat16 for op in graph.operators):
        return "auto" if has_int8 else "bf16"
    if has_int8:
        return "int8"
    bits = [str(op.params["bits"]) for op in graph.operators if op.type == "engine.BlockLinear"]
    return f"int{min(bits)}-weights" if bits else None


class Call(Generic[T]):
    """Request to a model.

    Args:
        model: model to run.
        request: request to answer.
        encode: converts the result to an answer.
    """

    def __init__(self, model: Model, request: InferRequest, encode: Callable[[InferResult], T]) -> None:
        self._model = model
        self._request = request
        self._encode = encode
        self._decoded: Decoded | None = None
        self._prepared: Prepared | None = None
        self._ran: Ran | None = None

    def prepare(self) -> RunSpec | None:
        """Decode and preprocess; return None if the outputs are cached."""
        if self._prepared is None:
            self._prepared = self._model.prepare(self._request, self._decoded)
        self._ran = self._model.runs.recall(self._prepared)
        return None if self._ran is not None else self._model.runs.spec(self._prepared)

    def prepare_here(self) -> bool:
        """Decode on the event loop; return whether the request qualifies to run there."""
        if not self._model.is_quick(self._request):
            return False
        self._decoded = self._model.decode(self._request)
        if not self._model.is_light(self._decoded.inputs):
            return False
        self._prepared = self._model.prepare(self._request, self._decoded)
        if not self._model.runs.is_known(self._prepared):
            return False  # shapes other than the measured ones
        self._ran = self._model.runs.recall(self._prepared)
        return True

    def run(self, cancelled: Callable[[], bool] | None) -> None:
        """Compute the outputs alone, unless they are known."""
        if self._ran is None:
            self._ran = self._model.runs.run(self.prepared, cancelled)

    def run_with(self, others: Sequence[Self], cancelled: Callable[[], bool]) -> None:
        """Compute the outputs of this and other calls in one run."""
        calls = [self, *others]
        ran = self._model.runs.run_together([call.prepared for call in calls], cancelled)
        for call, each in zip(calls, ran, strict=True):
            call._ran = each

    def finish(self, queue_s: float) -> tuple[T, InferResult]:
        """Postprocess and encode the answer."""
        assert self._ran is not None  # run() comes first
        self.prepared.timing.queue_s = queue_s
        result = self._model.postprocessing.finish(self.prepared, self._ran)
        if self._model.recorder is not None:
            self._model.recorder.add(self.prepared)
        return self._encode(result), result

    @property
    def prepared(self) -> Prepared:
        """Return the prepared request."""
        assert self._prepared is not None  # prepare() comes first
        return self._prepared
