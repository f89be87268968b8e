"""Steps of a pipeline, checked against the models that they name.

A *level* is a list of items that steps run on: the pictures, texts or rows of the request, or all predictions of a step
on the level above. A step's result belongs to the item that it ran on: each box of a detection gets the classes of its
crop.
"""

from __future__ import annotations

import typing
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

import engine
from app.arrays import dtype_name
from app.errors import ConfigError, ServiceError
from app.messages import brief, cut, did_you_mean, quoted
from app.models.servable import Servable
from app.pipelines.config import PIPELINE, PipelineConfig, StepConfig
from app.pipelines.part import SPANS, Finding, finding_of
from app.pipelines.reference import Reference, parse_reference
from app.signature import Kind as ContentKind
from app.signature import Signature, describe

# Names of the steps whose predictions are gone through, outermost first; empty for the request's own items.
Level: TypeAlias = tuple[str, ...]
ROOT: Final[Level] = ()
Kind: TypeAlias = ContentKind | Literal["tensor"]
_BOX, _POLYGON, _LABEL = "box", "polygon", "label"
_ANGLES: Final = ("0", "90", "180", "270")
# Rank of an input that takes a list of numbers for each item.
_VECTORS: Final = 2
# Tasks whose predictions have the labels of config.toml as they are.
_LABELLED: Final = ("classification", "detection", "text-classification", "audio-classification")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Origin of one input of a step's model.

    Args:
        port: name of the input.
        reference: value that it takes, None for a constant or a crop.
        constant: value for every item, in the input's dtype, without the batch.
    """

    port: engine.Port
    reference: Reference | None = None
    constant: NDArray[Any] | None = None


@dataclass(frozen=True, slots=True)
class Condition:
    """Condition on a field of an earlier prediction."""

    step: str
    field: str
    expected: float | str | tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStep:
    """Step with what it runs on.

    Args:
        config: the step in the file.
        level: items that it runs on.
        sources: origins of the model's inputs except for a crop.
        crop: boxes or polygons of pictures, or spans of sounds, on which it runs; or None.
        crop_port: input of the model that takes the crops.
        conditions: conditions on an item.
        finding: form of its predictions, or None.
    """

    config: StepConfig
    level: Level
    sources: tuple[Source, ...]
    crop: Reference | None
    crop_port: str | None
    conditions: tuple[Condition, ...]
    finding: Finding | None

    @property
    def name(self) -> str:
        """Return the step's name."""
        return self.config.name

    @property
    def found_level(self) -> Level:
        """Return the level of its predictions."""
        return (*self.level, self.name) if self.finding is not None and self.finding.is_list else self.level

    def rows(self, found: Any) -> list[dict[str, Any]]:
        """Return the predictions in the result for one item, None if it has none."""
        return [] if self.finding is None else self.finding.rows(found)

    @property
    def cuts_sounds(self) -> bool:
        """Return whether it runs on parts of a sound."""
        return self.crop is not None and self.crop.field == SPANS

    @property
    def references(self) -> list[Reference]:
        """Return all values of earlier steps and of the request that it reads, except in conditions."""
        found = [source.reference for source in self.sources if source.reference is not None]
        return [*found, self.crop] if self.crop is not None else found


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Checked steps, and the inputs and outputs of the whole.

    Args:
        steps: in the order in which they run.
        signature: inputs that the steps read from the request; outputs of all models, as STEP.NAME.
        default_outputs: outputs that an answer has if the request names none.
    """

    steps: tuple[PlannedStep, ...]
    signature: Signature
    default_outputs: tuple[str, ...]

    def shares(self, name: str) -> bool:
        """Return whether several steps read an input of the request, or run on parts of it."""
        readers = [step for step in self.steps for each in step.references if each == Reference(None, name)]
        return len(readers) > 1 or self.is_cut(name)

    def is_cut(self, name: str) -> bool:
        """Return whether a step runs on parts of an input of the request, the picture or the sound."""
        is_sound = name == self.signature.takes("sound")
        return any(step.crop is not None and step.cuts_sounds == is_sound for step in self.steps)


def make_plan(config: PipelineConfig, models: Sequence[Servable]) -> Plan:
    """Check the steps and return how they run.

    Args:
        config: the file.
        models: model of each step.

    Raises:
        ConfigError: a step does not fit; the message has its name and key, what was found and what was expected.
    """
    planner = _Planner(config)
    for step, model in zip(config.step, models, strict=True):
        try:
            planner.add(step, model)
        except ConfigError as exc:
            raise ConfigError(f"{PIPELINE}: step '{step.name}': {exc}") from None
    return planner.finish()


@dataclass(slots=True)
class _RequestInput:
    """Input of the request, as its first reader takes it."""

    port: engine.Port
    kind: Kind


@dataclass(slots=True)
class _Planner:
    """Plan in the making."""

    config: PipelineConfig
    steps: dict[str, PlannedStep] = field(default_factory=dict)
    models: dict[str, Servable] = field(default_factory=dict)
    inputs: dict[str, _RequestInput] = field(default_factory=dict)

    def add(self, config: StepConfig, model: Servable) -> None:
        """Check a step against the ones before it."""
        if config.name in self.steps:
            raise ConfigError("found a second step of this name, expected different names")
        if model.hooks is not None:  # a step has the inputs of the network, and reads predictions of its task
            raise ConfigError(f"model '{model.name}' has hooks.py, expected a model without")
        try:
            model.check_parameters(config.parameters)
        except ServiceError as exc:
            raise ConfigError(f"parameters: {exc}") from None
        crop, crop_port = self._crop(config, model)
        sources = tuple(self._sources(config, model, crop_port))
        references = [source.reference for source in sources if source.reference is not None]
        level = self._level([*references, crop] if crop is not None else references)
        step = PlannedStep(
            config=config,
            level=level,
            sources=sources,
            crop=crop,
            crop_port=crop_port,
            conditions=tuple(self._conditions(config, level)),
            finding=finding_of(model),
        )
        self._check_name(step)
        self._check_turn(step)
        self.models[config.name] = model
        self.steps[config.name] = step

    def finish(self) -> Plan:
        """Return the plan.

        Raises:
            ConfigError: a step is not used, or an input of the request has the name of a step.
        """
        steps = tuple(self.steps.values())
        read = {reference.step for step in steps for reference in step.references}
        for step in steps[:-1]:
            if step.finding is None and step.name not in read:
                raise ConfigError(
                    f"{PIPELINE}: step '{step.name}': it is not used: its model has no predictions, and no later step"
                    " reads its outputs"
                )
        if not self.inputs:
            raise ConfigError(f"{PIPELINE}: no step takes an input of the request, expected such as input = 'picture'")
        for name in self.inputs.keys() & self.steps.keys():
            raise ConfigError(f"{PIPELINE}: input: found '{name}', which is a step, expected '{name}.FIELD'")
        last = steps[-1]
        outputs = [port for name, model in self.models.items() for port in _outputs(name, model)]
        own = tuple(port.name for port in _outputs(last.name, self.models[last.name]))
        return Plan(
            steps=steps,
            signature=Signature(
                inputs=tuple(each.port for each in self.inputs.values()),
                outputs=tuple(outputs),
                contents=self._contents(),
            ),
            default_outputs=own if last.finding is None else (),
        )

    def _contents(self) -> dict[str, ContentKind]:
        """Return what the inputs of the request take besides tensors."""
        found = {name: each.kind for name, each in self.inputs.items() if each.kind != "tensor"}
        for kind in found.values():
            names = [name for name, each in found.items() if each == kind]
            if len(names) > 1:
                raise ConfigError(
                    f"{PIPELINE}: found {len(names)} inputs that take a {kind}: {quoted(names)}, expected one"
                )
        return found

    def _earlier(self, key: str, name: str) -> PlannedStep:
        """Return an earlier step.

        Raises:
            ConfigError: there is none of this name.
        """
        if name in self.steps:
            return self.steps[name]
        if any(step.name == name for step in self.config.step):
            raise ConfigError(f"{key}: found step '{cut(name)}', which does not come before this one")
        known = quoted(self.steps)
        raise ConfigError(f"{key}: unknown step '{cut(name)}'{did_you_mean(name, self.steps)}, expected one of {known}")

    def _field(self, key: str, name: str, field: str) -> tuple[PlannedStep, Finding]:
        """Return an earlier step whose predictions have a field, and their form."""
        step = self._earlier(key, name)
        finding = step.finding
        if finding is None:
            raise ConfigError(f"{key}: found '{name}.{cut(field)}', but the model of step '{name}' has no predictions")
        if finding.fields is None:
            raise ConfigError(
                f"{key}: found '{name}.{cut(field)}', but step '{name}' is a pipeline, whose predictions no step reads"
            )
        if not finding.has(field):
            raise ConfigError(
                f"{key}: found '{name}.{cut(field)}'{did_you_mean(field, finding.fields)}, expected one of"
                f" {quoted(f'{name}.{each}' for each in finding.fields)}"
            )
        return step, finding

    def _crop(self, config: StepConfig, model: Servable) -> tuple[Reference | None, str | None]:
        if config.crop is None:
            return None, None
        reference = parse_reference(config.crop)
        if reference.step is None or reference.is_output or reference.field not in (_BOX, _POLYGON, SPANS):
            raise ConfigError(
                f"crop: found '{cut(config.crop)}', expected STEP.{_BOX}, STEP.{_POLYGON} or STEP.{SPANS}"
            )
        kind: ContentKind = "sound" if reference.field == SPANS else "picture"
        step = self._earlier("crop", reference.step)
        if kind == "picture":
            _, finding = self._field("crop", reference.step, reference.field)
            if not finding.is_list:
                raise ConfigError(f"crop: found '{cut(config.crop)}', expected boxes of a detection")
        elif step.finding is None or step.finding.key != SPANS:
            raise ConfigError(f"crop: found '{cut(config.crop)}', but the predictions of the step have no {SPANS}")
        if not self._reads(step, kind):
            raise ConfigError(f"crop: found '{cut(config.crop)}', but step '{step.name}' does not run on a {kind}")
        port = model.signature.takes(kind)
        if port is None:
            raise ConfigError(f"crop: model '{model.name}' takes no {kind}s, expected one that does")
        if kind == "sound" and config.turn is not None:
            raise ConfigError("turn: found with parts of a sound, expected crops of a picture")
        return reference, port

    def _reads(self, step: PlannedStep, kind: Kind) -> bool:
        if step.crop is not None:
            return step.cuts_sounds == (kind == "sound")
        names = [each.field for each in step.references if each.step is None]
        return any(self.inputs[name].kind == kind for name in names)

    def _sources(self, config: StepConfig, model: Servable, crop_port: str | None) -> list[Source]:
        """Return the origins of all inputs of the model except the crop's."""
        signature = model.signature
        if isinstance(config.input, str):
            port = self._single_port(signature, model.name)
            return [self._reference(f"'{port.name}'", port, config.input, model)]
        given: dict[str, Any] = dict(config.input or {})
        found: dict[str, Source] = {}
        for name, value in given.items():
            known = signature.find_input(name)
            if known is None or known.name in found or known.name == crop_port:
                free = [each for each in signature.input_names if each != crop_port]
                raise ConfigError(f"input: found '{cut(name)}', expected each of {quoted(free)} once")
            is_name = isinstance(value, str)
            source = self._reference(f"'{name}'", known, value, model) if is_name else _constant(known, value)
            found[known.name] = source
        missing = [name for name in signature.input_names if name not in found and name != crop_port]
        if missing and signature.takes("text") is None:
            raise ConfigError(f"input: missing {quoted(missing)}, which model '{model.name}' needs")
        return [found[name] for name in signature.input_names if name in found]

    def _single_port(self, signature: Signature, model: str) -> engine.Port:
        """Return the input that ``input = "..."`` stands for."""
        for name in (signature.takes("text"), signature.takes("sound")):
            if name is not None:
                return signature.input(name)
        if len(signature.inputs) != 1:
            raise ConfigError(
                f"input: found one value, expected a table with each of {quoted(signature.input_names)}, as model"
                f" '{model}' has them"
            )
        return signature.inputs[0]

    def _reference(self, where: str, port: engine.Port, text: str, model: Servable) -> Source:
        """Return a source of an input, checked for its type."""
        reference = parse_reference(text)
        is_text = model.signature.takes("text") == port.name
        if reference.step is None:
            self._request_input(reference.field, port, model)
        elif reference.is_output:
            self._check_output(reference, port, is_text)
        else:
            _, finding = self._field("input", reference.step, reference.field)
            wanted = "a text" if is_text else "a list of numbers"
            if not (finding.is_text(reference.field) if is_text else finding.is_vector(reference.field)):
                raise ConfigError(f"input: found '{cut(text)}', expected {wanted} for input {where}")
            if not is_text and port.spec is not None and len(port.spec.shape) != _VECTORS:
                raise ConfigError(
                    f"input: found '{cut(text)}', a list of numbers for each item, expected {describe(port)} for input"
                    f" {where}"
                )
        return Source(port=port, reference=reference)

    def _request_input(self, name: str, port: engine.Port, model: Servable) -> None:
        kind: Kind = model.signature.contents.get(port.name, "tensor")
        known = self.inputs.get(name)
        if known is None:
            own = engine.Port(name=name, operand=name, spec=port.spec, size_names=port.size_names)
            self.inputs[name] = _RequestInput(own, kind)
        elif known.kind != kind:
            raise ConfigError(f"input: found '{cut(name)}' as a {kind}, but an earlier step takes a {known.kind} of it")

    def _check_output(self, reference: Reference, port: engine.Port, is_text: bool) -> None:
        step = self._earlier("input", reference.step or "")
        signature = self.models[step.name].signature
        output = signature.output(reference.field)
        if output is None:
            known = quoted(f"{step.name}.outputs.{each}" for each in signature.output_names)
            raise ConfigError(f"input: found '{step.name}.outputs.{cut(reference.field)}', expected one of {known}")
        if is_text or not _fits(output, port):
            wanted = "a text" if is_text else describe(port)
            raise ConfigError(
                f"input: found '{step.name}.outputs.{output.name}' ({describe(output)}), expected {wanted} for input"
                f" '{port.name}'"
            )

    def _level(self, references: Sequence[Reference]) -> Level:
        """Return the level of all values that a step reads."""
        levels = {self._level_of(each): each for each in references}
        if len(levels) > 1:
            names = sorted(f"{each.step}.{each.field}" if each.step else each.field for each in levels.values())
            raise ConfigError(
                f"input: found {quoted(names)}, which belong to different items, expected values of one item"
            )
        return next(iter(levels), ROOT)

    def _level_of(self, reference: Reference) -> Level:
        if reference.step is None:
            return ROOT
        step = self.steps[reference.step]
        return step.level if reference.is_output else step.found_level

    def _check_name(self, step: PlannedStep) -> None:
        """Raise if the result would replace a field of the prediction that it belongs to."""
        finding = self.steps[step.level[-1]].finding if step.level else None
        if finding is not None and finding.fields is not None and step.name in finding.fields:
            raise ConfigError(f"name: '{step.name}' is a field of the predictions of step '{step.level[-1]}'")

    def _check_turn(self, step: PlannedStep) -> None:
        turn = step.config.turn
        if turn is None:
            return
        by, _ = self._field("turn", turn.step, _LABEL)
        if by.crop != step.crop:
            raise ConfigError(f"turn: found step '{turn.step}', expected a step with crop = '{step.config.crop}'")
        labels = self.models[by.name].labels
        if labels is not None and not set(labels) <= set(_ANGLES):
            raise ConfigError(
                f"turn: the labels of step '{turn.step}' are {quoted(labels)}, expected {quoted(_ANGLES)}"
            )

    def _conditions(self, config: StepConfig, level: Level) -> list[Condition]:
        found = []
        for name, fields in config.where.items():
            for field_name, expected in fields.items():
                by, finding = self._field("where", name, field_name)
                self._check_expected(f"where: {name}.{field_name}", finding.type_of(field_name), expected)
                if field_name == _LABEL:
                    self._check_labels(name, expected)
                if by.level != level[: len(by.level)]:
                    raise ConfigError(
                        f"where: found '{name}.{field_name}', which belongs to other items than this step"
                    )
                found.append(Condition(name, field_name, expected))
        return found

    def _check_expected(self, where: str, kind: Any, expected: float | str | tuple[str, ...]) -> None:
        """Raise if no value of a field can meet a condition."""
        is_number = isinstance(expected, (int, float))
        shown = quoted(expected) if isinstance(expected, tuple) else brief(expected)
        if expected == () or (kind is str and is_number):
            raise ConfigError(f"{where}: found {shown}, expected a text or a list of texts")
        if kind in (int, float, bool) and not is_number:
            raise ConfigError(f"{where}: found {shown}, expected a number")
        if typing.get_origin(kind) is list:
            raise ConfigError(f"{where}: found a condition on a list, expected a field with a number or a text")

    def _check_labels(self, name: str, expected: float | str | tuple[str, ...]) -> None:
        """Raise if a condition has a label that the model does not have."""
        model = self.models[name]
        labels = model.labels
        if labels is None or model.task not in _LABELLED or isinstance(expected, (int, float)):
            return
        for label in (expected,) if isinstance(expected, str) else expected:
            if label not in labels and not label.isdecimal():  # classes without a label have their number
                raise ConfigError(
                    f"where: {name}.{_LABEL}: found '{cut(label)}'{did_you_mean(label, labels)}, expected one of"
                    f" {quoted(labels)}"
                )


def _outputs(name: str, model: Servable) -> list[engine.Port]:
    """Return the outputs of a step: any number of items."""
    found = []
    for port in model.signature.outputs:
        spec = port.spec
        if spec is not None and spec.shape:
            spec = engine.TensorSpec((None, *spec.shape[1:]), spec.dtype)
        found.append(engine.Port(name=f"{name}.{port.name}", operand=port.operand, spec=spec))
    return found


def _fits(output: engine.Port, port: engine.Port) -> bool:
    """Return whether an output may be this input, as far as the files tell."""
    if output.spec is None or port.spec is None:
        return True
    if output.spec.dtype != port.spec.dtype or len(output.spec.shape) != len(port.spec.shape):
        return False
    pairs = zip(output.spec.shape[1:], port.spec.shape[1:], strict=True)
    return all(None in (one, other) or one == other for one, other in pairs)


def _constant(port: engine.Port, value: object) -> Source:
    """Return a source with the same value for each item."""
    if port.spec is None or port.spec.dtype.hasobject:
        raise ConfigError(f"input: found a constant for '{port.name}', expected a reference")
    try:
        constant = np.asarray(value, port.spec.dtype)
    except (ValueError, TypeError, OverflowError):
        raise ConfigError(f"input: found lists of unequal length or a wrong number for '{port.name}'") from None
    shape = port.spec.shape[1:]
    if constant.ndim == len(shape) + 1 and len(constant) == 1:
        constant = constant[0]
    if constant.ndim != len(shape) or any(
        size not in (None, found) for size, found in zip(shape, constant.shape, strict=True)
    ):
        raise ConfigError(
            f"input: found a constant of shape {list(constant.shape)} for '{port.name}', expected {describe(port)}"
            f" without the batch ({dtype_name(port.spec.dtype)})"
        )
    return Source(port=port, constant=constant)
