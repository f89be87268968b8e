"""One served version of a model: graph, session, preprocessing and task. Knows neither HTTP nor the event loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final

from numpy.typing import NDArray
from PIL import Image

import engine
from app.errors import ConfigError, InputMismatchError, InvalidRequestError, NotAcceptableError
from app.images.placement import Placement
from app.images.preprocess import find_preprocessor
from app.memory.allowance import bounded, charge, would_fit
from app.memory.machine import budget_bytes
from app.models.batcher import Batcher
from app.models.examples import example_inputs, partly_known
from app.models.folder.config import ModelConfig
from app.models.request import Decoded, InferRequest, InferResult, Prepared, Ran, batch_of
from app.models.response_cache import open_cache
from app.models.sessions import open_session
from app.models.sizing import settle
from app.models.statistics import Timing
from app.scheduling.job import Demand
from app.settings import Settings
from app.signature import Inputs, Signature
from app.tasks.registry import find_task
from app.tasks.task import DrawingTask, Finding, Outputs, TaskContext
from app.wording import cut, quoted

# Runs that are over sooner, predictions included, are made on the event loop: a thread and back take some 100 us, and
# two threads that take turns disturb each other.
_QUICK_S: Final = 250e-6
# What is answered as text may take no time either.
_QUICK_BYTES: Final = 1 << 14
# Runs that are timed after the first, which starts threads and may share the cores with what else is loaded, if that
# took less; and so on if the next took still less.
_QUICK_RUNS: Final = 5
_MAYBE_S: Final = 50e-3
_PROBABLY_S: Final = 1e-3


class Model:
    """Runs requests; many threads may call it at once.

    Attributes:
        run_s: what a run of one item took when it was warmed up; None where it was not.

    Args:
        name, graph, config, labels: what the store found.
        threads: cores one run may use.

    Raises:
        ConfigError: the config does not fit the graph.
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
    ) -> None:
        self.name = name
        self.config = config
        # What the config says goes before what the file does.
        self.labels = labels = labels if labels is not None else graph.labels or None
        self._most_bytes = budget_bytes(settings.max_bytes_in_flight, settings.workers)
        self.session = open_session(graph, settings, min(config.threads or threads, threads))
        self.batcher = Batcher(self.session, config.batching)
        self.run_s: float | None = None
        self._rest_s: float | None = None
        self._is_brief = False
        self.preprocessor = find_preprocessor(graph.inputs, config.preprocess, settings)
        self.signature = Signature(
            inputs=graph.inputs,
            outputs=graph.outputs,
            picture_input=self.preprocessor.port.name if self.preprocessor is not None else None,
        )
        task = find_task(config.task)
        self._task = task(config.table(task), TaskContext(signature=self.signature, labels=labels))
        self._output_names = self.signature.output_names
        self.response_cache = open_cache(config.response_cache, graph)

    def infer(self, request: InferRequest, cancelled: Callable[[], bool] | None = None) -> InferResult:
        """Prepare, run and finish, for callers that have nothing else to run.

        cancelled: asked between operators; the run stops when it says yes.

        Raises:
            ServiceError, EngineError, ConfigError: as the three say.
        """
        prepared = self.prepare(request)
        return self.finish(prepared, self.run(prepared, cancelled))

    def decode(self, request: InferRequest) -> Decoded:
        """What the request has for each input; pictures are still to be decoded.

        Raises:
            ServiceError: it does not fit this model.
        """
        start = time.perf_counter()
        return Decoded(request.decode(self.signature), time.perf_counter() - start)

    def prepare(self, request: InferRequest, decoded: Decoded | None = None) -> Prepared:
        """Decode, unless that was done, and preprocess.

        Raises:
            ServiceError: the request does not fit this model.
        """
        options = self._task.options(request.parameters)
        wanted = self._wanted(request.outputs)
        decoded = self.decode(request) if decoded is None else decoded
        if request.draw:
            self._check_drawable(decoded.inputs)
        timing = Timing(decode_s=decoded.seconds)
        tensors, placements = self._tensors(decoded.inputs, timing)
        return Prepared(
            request=request,
            inputs=decoded.inputs,
            tensors=tensors,
            placements=placements,
            options=options,
            wanted=wanted,
            timing=timing,
        )

    def is_quick(self, request: InferRequest) -> bool:
        """Whether a request of one item is over sooner than a thread would have it, as far as was measured."""
        if self._rest_s is None or self.run_s is None or request.draw or not (self._is_brief or request.is_binary):
            return False
        # Trials measure it, too, and more often.
        return min(self.run_s, self.batcher.verdict.latency_s.get(1, self.run_s)) + self._rest_s < _QUICK_S

    def is_light(self, inputs: Inputs) -> bool:
        """Whether it takes no time to make tensors of these."""
        return all(
            not isinstance(value, tuple) or (self.preprocessor is not None and self.preprocessor.is_light(value))
            for value in inputs.values()
        )

    def is_as_measured(self, prepared: Prepared) -> bool:
        """Whether its run, and all that follows, is as it was measured."""
        return self.batcher.is_known(prepared.tensors, 1)

    def demand(self, prepared: Prepared) -> Demand:
        """What its run will take.

        Raises:
            EngineError: the tensors do not fit the graph.
        """
        return self.batcher.demand(prepared.tensors, prepared.items)

    def recall(self, prepared: Prepared) -> Ran | None:
        """What a run has given for these tensors before; None where that is not known.

        Raises:
            ServiceError: there is no memory for it.
        """
        cache, start = self.response_cache, time.perf_counter()
        if cache is None:
            return None
        key = cache.key(prepared.tensors)
        found = cache.get(key)
        prepared.timing.was_cached = False
        prepared.timing.cache_s = time.perf_counter() - start
        if found is None:
            prepared.key = key
            return None
        return _recalled(prepared, found)

    def forget(self) -> None:
        """Keep nothing from now on: others answer in its place."""
        if self.response_cache is not None:
            self.response_cache.close()

    def run(self, prepared: Prepared, cancelled: Callable[[], bool] | None = None) -> Ran:
        """Compute the outputs; of the request it needs the tensors only.

        Where answers are kept, and a run on the same tensors has ended since it was looked for one, or is under way,
        that one's outputs are taken.

        Args:
            cancelled: asked between operators, and while another run is waited for; nothing is waited for without.

        Raises:
            ServiceError: there is no memory for it.
            EngineError: the engine refuses the tensors, or fails.
        """
        if self.response_cache is None or prepared.key is None:
            return self._compute(prepared, cancelled)
        start, ran = time.perf_counter(), list[Ran]()

        def compute() -> dict[str, NDArray[Any]]:
            ran.append(self._compute(prepared, cancelled))
            return ran[0].outputs

        outputs, is_known = self.response_cache.once(prepared.key, compute, cancelled)
        prepared.timing.cache_s += time.perf_counter() - start - sum(each.infer_s for each in ran)
        return _recalled(prepared, outputs) if is_known else ran[0]._replace(outputs=dict(outputs))

    def _compute(self, prepared: Prepared, cancelled: Callable[[], bool] | None) -> Ran:
        start, items = time.perf_counter(), prepared.items
        outputs = self.batcher.run(prepared.tensors, items, cancelled)
        return Ran(outputs=outputs, infer_s=time.perf_counter() - start, batch=items)

    def run_together(self, prepared: Sequence[Prepared], cancelled: Callable[[], bool] | None = None) -> list[Ran]:
        """Compute the outputs of several requests in one run; where answers are kept, of equal ones once.

        Raises:
            ServiceError, EngineError: as ``run`` says; of which of them, nobody knows.
        """
        known = {each.key: found for each in prepared if (found := self._known(each)) is not None}
        first = {each.key or id(each): each for each in reversed(prepared) if each.key not in known}
        ran = self._runbatch_of(list(reversed(first.values())), cancelled)
        for each in prepared:
            if id(each) not in ran:
                outputs = known[each.key] if each.key in known else ran[id(first[each.key or id(each)])].outputs
                ran[id(each)] = _recalled(each, outputs)
        return [ran[id(each)] for each in prepared]

    def _runbatch_of(self, prepared: Sequence[Prepared], cancelled: Callable[[], bool] | None) -> dict[int, Ran]:
        """What one run gives for each of them, by its identity; their outputs are kept."""
        if not prepared:
            return {}
        start, items = time.perf_counter(), [each.items for each in prepared]
        found = self.batcher.run_together([each.tensors for each in prepared], items, cancelled)
        seconds, total = time.perf_counter() - start, sum(items)
        for each, outputs in zip(prepared, found, strict=True):
            if self.response_cache is not None and each.key is not None:
                self.response_cache.put(each.key, outputs)
        return {
            id(each): Ran(outputs=outputs, infer_s=seconds, batch=total, is_first=at == 0)
            for at, (each, outputs) in enumerate(zip(prepared, found, strict=True))
        }

    def _known(self, prepared: Prepared) -> Outputs | None:
        if self.response_cache is None or prepared.key is None:
            return None
        return self.response_cache.get(prepared.key)

    def finish(self, prepared: Prepared, ran: Ran) -> InferResult:
        """Predict and draw.

        Raises:
            ConfigError: the outputs are not what the config promises.
        """
        start = time.perf_counter()
        request, outputs, placements = prepared.request, ran.outputs, prepared.placements
        predictions = None
        if request.predict and self._task.FINDING is not None:
            predictions = self._task.predict(
                outputs, placements or self._whole(prepared.tensors, outputs), prepared.options
            )
        wanted = prepared.wanted
        if wanted is None:
            wanted = () if placements else tuple(outputs)
        drawing = self._draw(prepared.inputs, predictions) if request.draw and predictions else None
        timing = prepared.timing
        timing.infer_s = ran.infer_s
        timing.postprocess_s = time.perf_counter() - start
        return InferResult(
            outputs={name: outputs[name] for name in wanted},
            predictions=predictions,
            items=prepared.items,
            timing=timing,
            drawing=drawing,
            batch=ran.batch,
            is_first=ran.is_first,
        )

    @property
    def can_draw(self) -> bool:
        """Whether its predictions can be shown as a picture."""
        return isinstance(self._task, DrawingTask)

    def profile(self) -> list[dict[str, Any]]:
        """Each operator's measured time for one run on zeros; the run before it, which warms caches, is not counted.

        Raises:
            InvalidRequestError: the graph leaves sizes open, so there is no input to measure with.
        """
        inputs = self.example_inputs()
        if inputs is None:
            raise InvalidRequestError(
                "profile: the model leaves its input's size open, so there is nothing to run it on"
            )
        self.session.run(inputs)
        return self.session.run(inputs, profile=True).profile or []

    def compile(
        self,
        batch: int | None = None,
        *,
        specs: Sequence[engine.TensorSpec] | None = None,
        refresh: bool = False,
        tune: bool = False,
        progress: engine.Progress | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> dict[str, Any] | None:
        """Compile what runs of one item, of a batch, or of other shapes will need.

        Returns:
            What ``Session.prepare`` says; None as well where without specs the graph and the config leave a size open.

        Raises:
            EngineError: the model takes no such batch, or cannot be compiled though it must.
        """
        if specs is None:
            inputs = self.example_inputs()
            if inputs is None:
                return None
            specs = [engine.TensorSpec(array.shape, array.dtype) for array in inputs.values()]
        given: dict[str, Any] = {"progress": progress, "cancelled": cancelled}
        return self.session.prepare(batch, specs=specs, refresh=refresh, tune=tune, **given)

    def warm_up(self, progress: engine.Progress | None = None, cancelled: Callable[[], bool] | None = None) -> bool:
        """Compile, and run once on zeros, predictions included: False when the graph leaves sizes open.

        How other batches than the exported one run is settled as well, which the first of them would have to wait for.

        Args:
            progress: told how far compiling is.
            cancelled: asked between kernels and between operators whether it should end.

        Raises:
            EngineError: the model cannot run, or ``cancelled`` said so.
            ConfigError: its outputs are not what the config promises.
        """
        inputs = self.example_inputs()
        if inputs is None:
            return False
        self._check_memory(inputs)
        with self.in_bounds():
            self.compile(progress=progress, cancelled=cancelled)
            self._take_time(InferRequest(decode=lambda _: dict(inputs), parameters={}), cancelled)
            if cancelled is None or not cancelled():
                self.batcher.learn(inputs)
        return True

    def in_bounds(self) -> AbstractContextManager[None]:
        """Runs that no request asks for take no more memory than one that a request may ask for."""
        return bounded(self._most_bytes)

    def _take_time(self, request: InferRequest, cancelled: Callable[[], bool] | None) -> None:
        """See what a run takes; of a short one the first says little."""
        result = self.infer(request, cancelled)
        self.run_s, rest_s = result.timing.infer_s, result.timing.postprocess_s
        limit_s = _MAYBE_S
        for _ in range(_QUICK_RUNS):
            if self.run_s > limit_s:
                break
            timing = self.infer(request, cancelled).timing
            self.run_s, rest_s = min(self.run_s, timing.infer_s), min(rest_s, timing.postprocess_s)
            limit_s = _PROBABLY_S
        answered = sum(array.nbytes for array in result.outputs.values())
        self._rest_s, self._is_brief = rest_s, answered <= _QUICK_BYTES

    def settle_batching(self) -> None:
        """Find out, beside the requests, in which sizes it is run best; where it was warmed up, which tells of what."""
        if self.run_s is not None and not self.batcher.verdict.is_final:
            settle(self.batcher, self.run_s)

    def _check_memory(self, inputs: Mapping[str, NDArray[Any]]) -> None:
        needed = sum(array.nbytes for array in inputs.values()) + self.session.estimate_bytes(inputs)
        there_is = engine.total_memory_bytes()
        if needed > there_is:
            raise ConfigError(f"a run of one item takes some {needed:,} bytes, expected at most {there_is:,}")

    def example_inputs(self) -> dict[str, NDArray[Any]] | None:
        """Zeros for every input, one item of a batch; None when the graph and the config leave a size open."""
        return example_inputs(self.signature.inputs, self.preprocessor)

    def partly_known(self, specs: Sequence[engine.TensorSpec]) -> list[engine.TensorSpec]:
        """Specs of the inputs, with the sizes that the config gives them."""
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
        """Refuse a run that will not fit before its pictures are decoded: of those the size is known already."""
        known = {other: value for other, value in inputs.items() if not isinstance(value, tuple)}
        would_fit(self.session.estimate_bytes({**known, name: batch}))

    def _whole(self, tensors: Mapping[str, NDArray[Any]], outputs: Outputs) -> Sequence[Placement]:
        """For tensors sent as they are the picture is the network's canvas: its first input of four dimensions."""
        name, items = self.signature.picture_input or "", batch_of(outputs.values())
        maps = [tensors[name]] if name in tensors else [x for x in tensors.values() if x.ndim == 4]
        if not maps or maps[0].ndim != 4 or 0 in maps[0].shape[1:]:
            return [Placement.identity((1, 1))] * items
        is_nhwc = self.preprocessor is not None and self.preprocessor.config.layout == "nhwc"
        height, width = maps[0].shape[1:3] if is_nhwc else maps[0].shape[2:]
        return [Placement.identity((width, height))] * items

    def _check_drawable(self, inputs: Inputs) -> None:
        if not self.can_draw:
            raise NotAcceptableError(f"model '{self.name}': its task '{self.config.task}' gives no picture")
        pictures = inputs.get(self.signature.picture_input or "")
        items = len(pictures) if isinstance(pictures, tuple) else batch_of(inputs.values())
        if items != 1:
            raise InputMismatchError(
                f"an answer as a picture is of one item: found {items}, expected 1", found=items, expected=1
            )

    def _draw(self, inputs: Inputs, predictions: Sequence[Finding]) -> bytes | None:
        def picture() -> Image.Image:
            sent = inputs.get(self.signature.picture_input or "")
            if not isinstance(sent, tuple) or self.preprocessor is None:
                raise InputMismatchError("an answer as a picture: found a tensor, expected a picture to draw on")
            return self.preprocessor.open(sent[0])

        return self._task.draw(predictions[0], picture) if isinstance(self._task, DrawingTask) else None

    def _wanted(self, outputs: tuple[str, ...] | bool | None) -> tuple[str, ...] | None:
        if outputs is None:
            return None
        if isinstance(outputs, bool):
            return self._output_names if outputs else ()
        for name in outputs:
            if name not in self._output_names:
                raise InputMismatchError(
                    f"unknown output: found '{cut(name)}', expected one of {quoted(self._output_names)}",
                    found=name,
                    expected=list(self._output_names),
                )
        return outputs


def _recalled(prepared: Prepared, outputs: Outputs) -> Ran:
    """What another request's run has given.

    Raises:
        ServiceError: there is no memory for it.
    """
    prepared.timing.was_cached = True
    charge(sum(array.nbytes for array in outputs.values()))
    return Ran(outputs=dict(outputs), infer_s=0.0, batch=prepared.items, is_first=False)
