"""Steps of one request, one after the other; all items of a step run in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import engine
from app.errors import ConfigError, InputMismatchError, ServiceError
from app.images.decoded import PictureSource
from app.memory.reservation import charge, check
from app.messages import cut
from app.models.request import InferRequest, InferResult, batch_of
from app.models.servable import Servable
from app.models.statistics import Timing
from app.pipelines.crops import crop_box, crop_polygon
from app.pipelines.items import Item, first_ones, holds, prediction
from app.pipelines.plan import ROOT, Level, Plan, PlannedStep, Source
from app.signature import Input, Inputs
from app.sound.sound import MAX_SOUNDS, Recording, Sounds
from app.text.text import Text, Texts

_POLYGON: Final = "polygon"
_LABEL: Final = "label"
_SCORES: Final = ("score", "probability")
_ANGLES: Final = {"0": 0, "90": 90, "180": 180, "270": 270}

Cancelled = Callable[[], bool] | None


@dataclass(slots=True)
class Execution:
    """Run of a plan for one request.

    Args:
        plan: the steps.
        models: their models, as they were when the request arrived.
        inputs: inputs of the request; pictures and sounds that several steps read are decoded.
        parameters: parameters of the request, by step.
        wanted: outputs that the answer has.
        max_items: most predictions of a picture that a step runs on.
        timings: time of each step that ran.
    """

    plan: Plan
    models: Sequence[Servable]
    inputs: Inputs
    parameters: Mapping[str, Mapping[str, Any]]
    wanted: Sequence[str]
    max_items: int
    timings: dict[str, Timing] = field(default_factory=dict)
    _items: dict[Level, list[Item]] = field(default_factory=dict)
    _outputs: dict[tuple[str, str], NDArray[Any]] = field(default_factory=dict)
    _steps: dict[str, PlannedStep] = field(default_factory=dict)

    def run(self, cancelled: Cancelled) -> InferResult:
        """Run all steps.

        Raises:
            ServiceError, EngineError, ConfigError: a step failed; the message has its name.
        """
        self._items[ROOT] = [Item({}, index) for index in range(count_items(self.inputs))]
        for step, model in zip(self.plan.steps, self.models, strict=True):
            self._steps[step.name] = step
            try:
                self._run_step(step, model, cancelled)
            except ConfigError as exc:
                raise ConfigError(f"step '{step.name}': {exc}") from exc
            except ServiceError as exc:
                exc.message = cut(f"step '{step.name}': {exc.message}", _MESSAGE)
                raise
        roots = self._items[ROOT]
        has_predictions = any(step.finding is not None for step in self.plan.steps)
        return InferResult(
            outputs={name: self._output(name) for name in self.wanted},
            predictions=[item.fields for item in roots] if has_predictions else None,
            items=len(roots),
            timing=_total(self.timings),
            batch=len(roots),
        )

    def _run_step(self, step: PlannedStep, model: Servable, cancelled: Cancelled) -> None:
        """Run a step on all of its items, and give each its result."""
        level = self._items[step.level]
        if step.finding is not None:
            for item in level:
                item.fields[step.name] = None
        chosen = [item for item in level if self._is_chosen(step, item)]
        if step.level != ROOT:
            chosen = first_ones(chosen, self.max_items)
        timing = Timing()
        parts: list[InferResult] = []
        row = 0
        for chunk in self._chunks(step, model, chosen):
            check()
            if cancelled is not None and cancelled():
                raise engine.RunCancelledError("the request is no longer needed")
            result = self._run_chunk(step, model, chunk, cancelled)
            timing.add(result.timing)
            self.timings[step.name] = timing
            parts.append(result)
            for item in chunk:
                item.rows[step.name] = row
                row += 1
        self._keep_outputs(step, model, parts)
        if step.found_level != step.level:
            self._items[step.found_level] = [
                Item(found, item.index, item) for item in level for found in step.rows(item.fields[step.name])
            ]

    def _is_chosen(self, step: PlannedStep, item: Item) -> bool:
        """Return whether a step runs on an item; its picture or sound is cut if so."""
        for condition in step.conditions:
            if not holds(condition, prediction(item, step.level, self._steps[condition.step])):
                return False
        for reference in step.references:
            if reference.step is not None and reference != step.crop:
                by = self._steps[reference.step]
                is_there = by.name in item.rows if reference.is_output else prediction(item, step.level, by)
                if not is_there:
                    return False
        if step.crop is None:
            return True
        crop = self._cropped(step, item)
        if crop is not None:
            item.contents[step.name] = crop
        return crop is not None

    def _cropped(self, step: PlannedStep, item: Item) -> PictureSource | Recording | None:
        """Return the crop of the picture, or the part of the sound, at an item; None if it is empty."""
        assert step.crop is not None and item.parent is not None  # boxes have a picture
        name, field_name = step.crop.step or "", step.crop.field
        whole = item.parent.contents[name]
        if isinstance(whole, Recording):
            margin_s = step.config.margin * (item.fields["end"] - item.fields["start"])
            start_s, end_s = item.fields["start"] - margin_s, item.fields["end"] + margin_s
            return whole.cut(start_s, end_s, f"a part for '{step.name}'")
        where = item.fields.get(field_name)
        if where is None:
            raise ConfigError(f"crop: the predictions of step '{name}' have no {field_name}")
        make: Any = crop_polygon if field_name == _POLYGON else crop_box
        found: PictureSource | None = make(
            whole, where, step.config.margin, self._turn(step, item), f"a crop for '{step.name}'"
        )
        return found

    def _turn(self, step: PlannedStep, item: Item) -> int:
        turn = step.config.turn
        found = None if turn is None else prediction(item, step.level, self._steps[turn.step])
        if turn is None or found is None:
            return 0
        score = next((found[key] for key in _SCORES if found.get(key) is not None), 0.0)
        return _ANGLES.get(str(found.get(_LABEL)), 0) if score >= turn.score else 0

    def _chunks(self, step: PlannedStep, model: Servable, items: list[Item]) -> Iterator[list[Item]]:
        """Yield the items of each run: those of the request together, crops of pictures in batches of similar shape."""
        if step.level == ROOT:
            if items:
                yield items
            return
        most = model.run_items
        if step.cuts_sounds:
            most = min(most, MAX_SOUNDS)
        elif step.crop is not None:
            items = sorted(items, key=lambda item: _aspect(item.contents[step.name]))
        yield from (items[start : start + most] for start in range(0, len(items), most))

    def _run_chunk(
        self, step: PlannedStep, model: Servable, items: Sequence[Item], cancelled: Cancelled
    ) -> InferResult:
        inputs: Inputs = {source.port.name: self._value(step, source, items) for source in step.sources}
        if step.crop_port is not None:
            parts: Any = tuple(item.contents[step.name] for item in items)
            inputs[step.crop_port] = Sounds(parts) if step.cuts_sounds else parts
        names = self._needed(step.name)
        request = InferRequest(
            decode=lambda _: inputs,
            parameters={**step.config.parameters, **self.parameters.get(step.name, {})},
            outputs=names,
        )
        result = model.infer(request, cancelled)
        if step.finding is None:
            return result
        if result.predictions is None or len(result.predictions) != len(items):
            found = 0 if result.predictions is None else len(result.predictions)
            raise ConfigError(f"found {found} predictions of model '{model.name}', expected {len(items)}")
        for item, finding in zip(items, result.predictions, strict=True):
            item.fields[step.name] = finding
        return result

    def _value(self, step: PlannedStep, source: Source, items: Sequence[Item]) -> Input:
        """Return the value of an input for some items."""
        reference = source.reference
        if reference is None:
            assert source.constant is not None  # a source has one of both
            return np.broadcast_to(source.constant, (len(items), *source.constant.shape))
        if reference.step is None:
            return self._of_request(step, reference.field, items)
        if reference.is_output:
            rows = [item.rows[reference.step] for item in items]
            whole = self._outputs[reference.step, reference.field]
            return whole if rows == list(range(len(whole))) else whole[rows]
        by = self._steps[reference.step]
        values = [(prediction(item, step.level, by) or {}).get(reference.field) for item in items]
        if isinstance(values[0], str):
            return Texts(tuple(Text(str(value)) for value in values))
        dtype = np.float32 if source.port.spec is None else source.port.spec.dtype
        return np.array(values, dtype)

    def _of_request(self, step: PlannedStep, name: str, items: Sequence[Item]) -> Input:
        """Return an input of the request for some of its items."""
        value, indices = self.inputs[name], [item.index for item in items]
        if isinstance(value, np.ndarray):
            return value if len(items) == len(self._items[ROOT]) else value[indices]
        if isinstance(value, Texts):
            return Texts(tuple(value.items[index] for index in indices))
        parts: Any = value.items if isinstance(value, Sounds) else value
        for item in items:
            item.contents[step.name] = parts[item.index]
        chosen = tuple(parts[index] for index in indices)
        return Sounds(chosen) if isinstance(value, Sounds) else chosen

    def _needed(self, step: str) -> tuple[str, ...]:
        """Return the outputs of a step's model that other steps or the answer need."""
        read = [
            each.field for other in self.plan.steps for each in other.references if each.is_output and each.step == step
        ]
        asked = [name.removeprefix(f"{step}.") for name in self.wanted if name.startswith(f"{step}.")]
        return tuple(dict.fromkeys([*read, *asked]))

    def _keep_outputs(self, step: PlannedStep, model: Servable, parts: Sequence[InferResult]) -> None:
        """Join the outputs of a step's runs."""
        for name in self._needed(step.name):
            arrays = [part.outputs[name] for part in parts]
            if len({array.shape[1:] for array in arrays}) > 1:
                raise InputMismatchError(
                    f"output '{step.name}.{name}': its runs have different shapes, so that they cannot be joined"
                )
            if len(arrays) > 1:
                charge(sum(array.nbytes for array in arrays))
            self._outputs[step.name, name] = (
                np.concatenate(arrays) if len(arrays) > 1 else (arrays[0] if arrays else _empty(model, name))
            )

    def _output(self, name: str) -> NDArray[Any]:
        """Return an output in the order of the items."""
        step, _, output = name.partition(".")
        found = self._outputs[step, output]
        level = self._items[self._steps[step].level]
        rows = [item.rows[step] for item in level if step in item.rows]
        return found if rows == sorted(rows) else found[rows]


_MESSAGE: Final = 4_000


def count_items(inputs: Inputs) -> int:
    """Return the number of pictures, texts or rows of a request.

    Raises:
        InputMismatchError: inputs have different numbers.
    """
    counts = {name: _count(value) for name, value in inputs.items()}
    if len(set(counts.values())) > 1:
        found = ", ".join(f"{count} for '{name}'" for name, count in counts.items())
        raise InputMismatchError(f"found {found}, expected as many items for each input")
    return next(iter(counts.values()))


def _count(value: Input) -> int:
    if isinstance(value, np.ndarray):
        return batch_of([value])
    return len(value.items) if isinstance(value, (Sounds, Texts)) else len(value)


def _aspect(picture: Any) -> float:
    width, height = picture.open(max_pixels=1 << 62).size
    return float(width / height)


def _empty(model: Servable, name: str) -> NDArray[Any]:
    """Return an output without rows."""
    port = model.signature.output(name)
    if port is None or port.spec is None:
        return np.empty((0,), np.float32)
    return np.empty((0, *(size or 0 for size in port.spec.shape[1:])), port.spec.dtype)


def _total(timings: dict[str, Timing]) -> Timing:
    total = Timing(steps=timings)
    for timing in timings.values():
        total.add(timing)
    return total
