"""What every task is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from numpy.typing import NDArray
from PIL import Image
from pydantic import ValidationError

from app.errors import ConfigError, InvalidRequestError
from app.images.placement import Placement
from app.messages import cut, did_you_mean, explain_validation, quoted
from app.schema import Section
from app.signature import Signature

Outputs: TypeAlias = Mapping[str, NDArray[Any]]
Prediction: TypeAlias = dict[str, Any]
# What is predicted for one item: a list, best first, or one object.
Finding: TypeAlias = list[Prediction] | Prediction
ConfigT = TypeVar("ConfigT", bound=Section)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext:
    """What a task must know of its model."""

    signature: Signature
    labels: tuple[str, ...] | None

    def label(self, index: int) -> str:
        """The label of a class, its number where there is none."""
        known = self.labels if self.labels is not None else ()
        return (known[index] if index < len(known) else "") or str(index)

    def check_labels(self, classes: int) -> None:
        """Refuse labels that are not one per class.

        Raises:
            ConfigError: with both counts.
        """
        if self.labels is not None and len(self.labels) != classes:
            raise ConfigError(f"labels: found {len(self.labels)}, expected {classes}, one for each class of the model")


class Task(ABC, Generic[ConfigT]):
    """Turns a batch of outputs into predictions; made once per model, used by many threads at once.

    Of the class:
        NAME: what config.toml calls it; a table of that name holds its keys.
        CONFIG: those keys.
        PARAMETERS: which of them a request may give other values, and what the OpenAPI document says of each.
        FINDING: the type of what is predicted for one item; None where nothing is.
        EXAMPLE: what an answer to a picture of one pixel holds, beside what all answers do.

    Args:
        config: the table of the model's config.toml.
    """

    NAME: ClassVar[str]
    CONFIG: ClassVar[type[Section]]
    PARAMETERS: ClassVar[Mapping[str, str]] = {}
    FINDING: ClassVar[Any] = None
    EXAMPLE: ClassVar[Mapping[str, Any]]

    def __init__(self, config: ConfigT, context: TaskContext) -> None:
        self._config = config
        self._context = context

    def options(self, parameters: Mapping[str, Any]) -> ConfigT:
        """The request's parameters laid over the model's config, checked before anything runs.

        Raises:
            InvalidRequestError: for a parameter the task has not, or a value out of its range.
        """
        for name in parameters:
            if name not in self.PARAMETERS:
                near, known = did_you_mean(name, self.PARAMETERS), quoted(self.PARAMETERS)
                raise InvalidRequestError(f"unknown parameter '{cut(name)}'{near}, this model takes {known}")
        if not parameters:
            return self._config
        try:
            return type(self._config).model_validate({**self._config.model_dump(), **parameters})
        except ValidationError as exc:
            first = exc.errors()[0]
            raise InvalidRequestError(f"{first['loc'][0]}: {explain_validation(first)}") from None

    @abstractmethod
    def predict(self, outputs: Outputs, placements: Sequence[Placement], options: ConfigT) -> Sequence[Finding] | None:
        """What is found for each item of the batch; None where the task predicts nothing.

        placements: where each item's picture lies on the network's canvas, one for each item of the batch.

        Raises:
            ConfigError: the outputs have not the shape the config promises.
        """

    def _named_output(self, key: str, name: str | None) -> str:
        """Return the name of the output that a key of the config means; of the first one where it says nothing.

        Raises:
            ConfigError: the model has no such output.
        """
        signature = self._context.signature
        port = signature.output(name) if name else signature.outputs[0]
        if port is None:
            raise ConfigError(
                f"{self.NAME}.{key}: found '{cut(name or '')}', expected one of {quoted(signature.output_names)}"
            )
        return port.name


class DrawingTask(Task[ConfigT]):
    """A task whose predictions can be shown as a picture."""

    @abstractmethod
    def draw(self, finding: Any, picture: Callable[[], Image.Image]) -> bytes:
        """What was found for one item, shown, as a PNG.

        picture: decodes the picture sent anew, upright and in its own pixels, to be drawn on; raises
        InputMismatchError where none was sent.
        """


def check_items(found: int, placements: Sequence[Placement]) -> None:
    """Refuse outputs that are not of as many items as the inputs.

    Raises:
        ConfigError: with both counts.
    """
    if found != len(placements):
        raise ConfigError(f"the outputs are of {found} items, expected {len(placements)}")


def rounded(value: float) -> float:
    """Seven significant digits: what a float32 holds, without the noise of printing it as a double."""
    return float(f"{value:.7g}")
