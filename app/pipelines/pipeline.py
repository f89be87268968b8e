"""Served pipeline: a model made of models of the store, which it looks up for each request."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import numpy as np

from app.errors import (
    ConfigError,
    InputMismatchError,
    InvalidRequestError,
    ModelNotFoundError,
    ModelNotReadyError,
    ServiceError,
)
from app.hooks.hooks import Hooks
from app.images.decoded import decode_once as decode_picture
from app.messages import cut, did_you_mean, quoted
from app.models.request import InferRequest, InferResult, requested_outputs
from app.models.sequences import Sequences
from app.models.servable import BatchAxes, Servable
from app.models.statistics import Timing
from app.pipelines.config import TASK, PipelineConfig
from app.pipelines.description import describe
from app.pipelines.execution import Execution, count_items
from app.pipelines.nesting import Parts, check_nesting
from app.pipelines.plan import Plan, make_plan
from app.scheduling.job import RunSpec, Work
from app.settings import Settings
from app.signature import Input, Inputs, Signature
from app.sound.decode import decode_once as decode_sound
from app.sound.sound import Sounds
from app.text.text import Texts

T = TypeVar("T")
# Items of a pipeline that is a step of another.
_RUN_ITEMS: Final = 8


class Pipeline:
    """Execution of requests on the steps of a pipeline, for many threads at once.

    Each request looks its models up in the store, so that it runs on the versions that are served when it arrives, and
    keeps them until it is over.

    Args:
        name: name in the store.
        config: its file.
        parts: models of the store.
        settings: settings of the server.

    Raises:
        ConfigError: a model is missing, a step does not fit, or the pipeline contains itself.
    """

    def __init__(self, name: str, config: PipelineConfig, parts: Parts, settings: Settings) -> None:
        self.name = name
        self.task = TASK
        self.config = config
        self.labels: tuple[str, ...] | None = None
        self.remark: str | None = None
        self.sequences: Sequences | None = None
        self.hooks: Hooks | None = None
        self._parts = parts
        self._settings = settings
        check_nesting(name, config, parts)
        models = self._models(ConfigError)
        self._known: tuple[Plan, tuple[weakref.ref[Any], ...]] = (make_plan(config, models), _refs(models))

    @property
    def plan(self) -> Plan:
        """Return the plan for the models as they were at the last request."""
        return self._known[0]

    @property
    def signature(self) -> Signature:
        """Return the inputs and outputs."""
        return self.plan.signature

    @property
    def finding(self) -> Any:
        """Return the type of the prediction for one item."""
        return dict[str, Any] if any(step.finding is not None for step in self.plan.steps) else None

    @property
    def parameters(self) -> Mapping[str, str]:
        """Return the parameters of all steps."""
        return {key: text for model in self._models(ModelNotReadyError) for key, text in model.parameters.items()}

    @property
    def batch_axes(self) -> BatchAxes:
        """Return the dimensions that hold the batch: the first ones."""
        return (0,) * len(self.signature.inputs), (0,) * len(self.signature.outputs)

    @property
    def can_draw(self) -> bool:
        """Return False: a pipeline does not draw."""
        return False

    @property
    def run_items(self) -> int:
        """Return the largest number of items that one run should have."""
        return _RUN_ITEMS

    def check_parameters(self, parameters: Mapping[str, Any]) -> None:
        """Raise unless a request may have these parameters.

        Raises:
            InvalidRequestError: no step has a parameter, or a value is out of range.
        """
        self._parameters(parameters, self._models(ModelNotReadyError))

    def describe(self) -> dict[str, Any]:
        """Return the steps as operators of a graph."""
        return describe(self.name, self.plan)

    def infer(self, request: InferRequest, cancelled: Callable[[], bool] | None = None) -> InferResult:
        """Run all steps.

        Raises:
            ServiceError, EngineError, ConfigError: a model is not served, or a step fails.
        """
        execution, timing = self.prepare(request)
        return finished(execution.run(cancelled), timing)

    def call(self, request: InferRequest, encode: Callable[[InferResult], T]) -> Work:
        """Return the steps of a request for the scheduler."""
        return PipelineCall(self, request, encode)

    def use(self) -> None:
        """Note that a request was answered: its models may be tuned."""
        for known in self._known[1]:
            model = known()
            if model is not None:
                model.use()

    def forget(self) -> None:
        """Do nothing: a pipeline has no cache."""

    def tune_batching(self) -> None:
        """Do nothing: the models of the steps are tuned."""

    def prepare(self, request: InferRequest) -> tuple[Execution, Timing]:
        """Look up the models, decode the request, and decode what several steps read.

        Returns:
            The steps, ready to run, and the time taken.

        Raises:
            ServiceError: a model is not served, or the request does not fit.
        """
        start = time.perf_counter()
        models = self._models(ModelNotReadyError)
        plan = self._plan_for(models)
        parameters = self._parameters(request.parameters, models)
        wanted = requested_outputs(plan.signature, request.outputs)
        inputs = request.decode(plan.signature)
        self._check(inputs, plan)
        count_items(inputs)
        inputs = {name: self._decoded(name, value, plan) for name, value in inputs.items()}
        execution = Execution(
            plan=plan,
            models=models,
            inputs=inputs,
            parameters=parameters,
            wanted=plan.default_outputs if wanted is None else wanted,
            max_items=self.config.max_items,
        )
        return execution, Timing(decode_s=time.perf_counter() - start)

    def _decoded(self, name: str, value: Input, plan: Plan) -> Input:
        """Return an input of the request; a picture or sound that several steps read is decoded.

        Raises:
            ServiceError: it cannot be decoded.
        """
        if isinstance(value, (np.ndarray, Texts)) or not plan.shares(name):
            return value
        if isinstance(value, Sounds):
            sounds: Any = value.items
            return Sounds(tuple(decode_sound(each, self._settings.max_sound_s) for each in sounds))
        return tuple(decode_picture(each, self._settings.max_pixels) for each in value)

    def _check(self, inputs: Inputs, plan: Plan) -> None:
        """Raise unless the steps can read these inputs.

        Raises:
            InputMismatchError: an input is missing, or a tensor stands for a text, or for what is cut.
        """
        signature = plan.signature
        missing = [name for name in signature.input_names if name not in inputs]
        if missing:
            raise InputMismatchError(
                f"missing inputs: found {quoted(inputs)}, expected {quoted(signature.input_names)}"
            )
        for name, kind in signature.contents.items():
            if kind == "text" and not isinstance(inputs[name], Texts):
                raise InputMismatchError(f"input '{name}': found a tensor, expected a text")
            if kind != "text" and isinstance(inputs[name], np.ndarray) and plan.is_cut(name):
                raise InputMismatchError(f"input '{name}': found a tensor, expected a {kind}, because a step crops it")

    def _models(self, error: type[ConfigError | ModelNotReadyError]) -> list[Servable]:
        """Return the served model of each step.

        Raises:
            ConfigError, ModelNotReadyError: as ``error``; a model is not served.
        """
        found = []
        for step in self.config.step:
            try:
                found.append(self._parts.part(step.model_name, step.version))
            except ServiceError as exc:
                raise error(f"step '{step.name}': {_reason(step.model_name, exc)}") from None
        return found

    def _plan_for(self, models: Sequence[Servable]) -> Plan:
        """Return the plan for these models; steps are checked again if a model has been replaced.

        Raises:
            ModelNotReadyError: a step does not fit.
        """
        plan, known = self._known
        if all(ref() is model for ref, model in zip(known, models, strict=True)):
            return plan
        try:
            plan = make_plan(self.config, models)
        except ConfigError as exc:
            raise ModelNotReadyError(f"model '{self.name}': {exc}") from None
        self._known = plan, _refs(models)
        return plan

    def _parameters(self, parameters: Mapping[str, Any], models: Sequence[Servable]) -> dict[str, Mapping[str, Any]]:
        """Return the parameters of a request for each step that has them.

        Raises:
            InvalidRequestError: no step has a parameter, or a value is out of range.
        """
        if not parameters:
            return {}
        known = {step.name: model.parameters for step, model in zip(self.config.step, models, strict=True)}
        every = {key for each in known.values() for key in each}
        for key in parameters:
            if key not in every:
                near, takes = did_you_mean(key, every), quoted(sorted(every))
                raise InvalidRequestError(f"unknown parameter '{cut(key)}'{near}, this model takes {takes}")
        found: dict[str, Mapping[str, Any]] = {
            name: {key: parameters[key] for key in keys if key in parameters} for name, keys in known.items()
        }
        for step, model in zip(self.config.step, models, strict=True):
            model.check_parameters({**step.parameters, **found[step.name]})
        return found


def _reason(model: str, error: ServiceError) -> str:
    """Return why a model is not served, without the names of all models: a key may allow the pipeline only."""
    known = error.detail.get("known")
    if isinstance(error, ModelNotFoundError) and isinstance(known, list):
        return f"no model '{cut(model)}'{did_you_mean(model, known)} in the store"
    return error.message


def finished(result: InferResult, timing: Timing) -> InferResult:
    """Return the result with the time of preparing and waiting."""
    result.timing.add(timing)
    return result


def _refs(models: Sequence[Servable]) -> tuple[weakref.ref[Any], ...]:
    """Return weak references: an unloaded model must not stay in memory until the next request."""
    return tuple(weakref.ref(model) for model in models)


class PipelineCall(Generic[T]):
    """Request to a pipeline.

    Args:
        pipeline: pipeline to run.
        request: request to answer.
        encode: converts the result to an answer.
    """

    def __init__(self, pipeline: Pipeline, request: InferRequest, encode: Callable[[InferResult], T]) -> None:
        self._pipeline = pipeline
        self._request = request
        self._encode = encode
        self._execution: Execution | None = None
        self._timing = Timing()
        self._result: InferResult | None = None

    def prepare(self) -> RunSpec:
        """Decode the request."""
        self._execution, self._timing = self._pipeline.prepare(self._request)
        return RunSpec(items=count_items(self._execution.inputs))

    def prepare_here(self) -> bool:
        """Return False: several models never take as little time as handing a request to a thread."""
        return False

    def run(self, cancelled: Callable[[], bool] | None) -> None:
        """Run all steps."""
        assert self._execution is not None  # prepare() comes first
        self._result = self._execution.run(cancelled)
        self._execution = None

    def run_with(self, others: Sequence[Any], cancelled: Callable[[], bool]) -> None:
        """Raise: requests to a pipeline share no runs."""
        raise NotImplementedError

    def finish(self, queue_s: float) -> tuple[T, InferResult]:
        """Encode the answer."""
        assert self._result is not None  # run() comes first
        self._timing.queue_s = queue_s
        result = finished(self._result, self._timing)
        return self._encode(result), result
