"""What every task is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar, runtime_checkable

from numpy.typing import NDArray
from PIL import Image
from pydantic import ValidationError

from app.config import ModelConfig, Section
from app.errors import ConfigError, InvalidRequestError
from app.images.placement import Placement
from app.signature import Signature
from app.wording import brief, cut, did_you_mean, quoted

Outputs: TypeAlias = Mapping[str, NDArray[Any]]
Prediction: TypeAlias = dict[str, Any]
# What is predicted for one item: a list, best first, or one object.
Finding: TypeAlias = list[Prediction] | Prediction
SectionT = TypeVar("SectionT", bound=Section)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext:
    """What a task is made from."""

    config: ModelConfig
    signature: Signature
    labels: tuple[str, ...] | None

    def label(self, index: int) -> str:
        """The label of a class, its number where there is none."""
        known = self.labels if self.labels is not None else ()
        return (known[index] if index < len(known) else "") or str(index)

    def check_output(self, key: str, name: str) -> str:
        """The name, if the model has such an output.

        Raises:
            ConfigError: naming the key of config.toml.
        """
        if name not in self.signature.output_names:
            raise ConfigError(f"{key}: found '{cut(name)}', expected one of {quoted(self.signature.output_names)}")
        return name

    def check_labels(self, classes: int) -> None:
        """Refuse labels that are not one per class.

        Raises:
            ConfigError: with both counts.
        """
        if self.labels is not None and len(self.labels) != classes:
            raise ConfigError(f"labels: found {len(self.labels)}, expected {classes}, one for each class of the model")


class Task(Protocol):
    """Turns a batch of outputs into predictions; made once per model, used by many threads at once."""

    PARAMETERS: ClassVar[tuple[str, ...]]

    def __init__(self, context: TaskContext) -> None: ...

    def options(self, parameters: Mapping[str, Any]) -> Any:
        """The request's parameters laid over the model's config, checked before anything runs.

        Raises:
            InvalidRequestError: for a parameter the task has not, or a value out of its range.
        """
        ...

    def predict(self, outputs: Outputs, placements: Sequence[Placement], options: Any) -> Sequence[Finding] | None:
        """What is found for each item of the batch; None where the task predicts nothing.

        placements: where each item's picture lies on the network's canvas, one for each item of the batch.

        Raises:
            ConfigError: the outputs have not the shape the config promises.
        """
        ...


@runtime_checkable
class DrawingTask(Task, Protocol):
    """A task whose predictions can be shown as a picture."""

    def draw(self, finding: Any, picture: Callable[[], Image.Image]) -> bytes:
        """What was found for one item, shown, as a PNG.

        picture: decodes the picture sent anew, upright and in its own pixels, to be drawn on; raises
        InputMismatchError where none was sent.
        """
        ...


def reject_unknown(parameters: Mapping[str, Any], allowed: Sequence[str]) -> None:
    """Refuse parameters a task has not.

    Raises:
        InvalidRequestError: naming the first one and those there are.
    """
    for name in parameters:
        if name not in allowed:
            raise InvalidRequestError(
                f"unknown parameter '{cut(name)}'{did_you_mean(name, allowed)}, this model takes {quoted(allowed)}"
            )


def overlay(section: SectionT, parameters: Mapping[str, Any], allowed: Sequence[str]) -> SectionT:
    """A config section with a request's parameters laid over it.

    Raises:
        InvalidRequestError: as Task.options says.
    """
    reject_unknown(parameters, allowed)
    if not parameters:
        return section
    try:
        return type(section).model_validate({**section.model_dump(), **parameters})
    except ValidationError as exc:
        first = exc.errors()[0]
        raise InvalidRequestError(f"{first['loc'][0]}: {first['msg']}, found {brief(first['input'])}") from None


def rounded(value: float) -> float:
    """Seven significant digits: what a float32 holds, without the noise of printing it as a double."""
    return float(f"{value:.7g}")
