"""Base classes of tasks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, TypeAlias, TypeVar

from numpy.typing import NDArray
from PIL import Image
from pydantic import ValidationError

from app.errors import ConfigError, InvalidRequestError
from app.images.placement import Placement
from app.messages import cut, did_you_mean, explain_validation, quoted
from app.schema import Section
from app.signature import Signature
from app.sound.sound import Sounds
from app.text.text import Texts
from app.text.tokenizer import Tokenizer

Outputs: TypeAlias = Mapping[str, NDArray[Any]]
Prediction: TypeAlias = dict[str, Any]
# Prediction for one item: a list, best first, or one object.
Finding: TypeAlias = list[Prediction] | Prediction
ConfigT = TypeVar("ConfigT", bound=Section)


class TaskRun(NamedTuple):
    """Outputs of one run by name, what each row is, and the position of its item in the request; see ``ContentRun``."""

    outputs: Outputs
    contents: Sequence[Any]
    indices: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext:
    """Properties of the model that a task needs."""

    signature: Signature
    labels: tuple[str, ...] | None
    tokenizer: Tokenizer | None = None
    words: tuple[str, ...] | None = None

    def token(self, index: int) -> str:
        """Return the token of an id, or an empty string."""
        return "" if self.tokenizer is None else self.tokenizer.token(index)

    def label(self, index: int) -> str:
        """Return the label of a class, or its number."""
        known = self.labels if self.labels is not None else ()
        return (known[index] if index < len(known) else "") or str(index)

    def check_labels(self, classes: int) -> None:
        """Raise unless there is one label for each class.

        Raises:
            ConfigError: the message has both counts.
        """
        if self.labels is not None and len(self.labels) != classes:
            raise ConfigError(f"labels: found {len(self.labels)}, expected {classes}, one for each class of the model")


class Task(ABC, Generic[ConfigT]):
    """Conversion of a batch of outputs to predictions; one object per model, used by many threads at once.

    Class attributes:
        NAME: name in config.toml; also of the table with its keys.
        CONFIG: model of that table.
        PARAMETERS: keys that a request may override, with their descriptions for OpenAPI.
        FINDING: type of the prediction for one item; None if the task predicts nothing.
        TAKES: type of the contents that requests must have, ``Texts`` or ``Sounds``; None for tensors and pictures.
        EXAMPLE: fields of an answer specific to the task, for a picture of one pixel.

    Args:
        config: the task's table of the model's config.toml.
        context: properties of the model.
    """

    NAME: ClassVar[str]
    CONFIG: ClassVar[type[Section]]
    PARAMETERS: ClassVar[Mapping[str, str]] = {}
    FINDING: ClassVar[Any] = None
    TAKES: ClassVar[type[Texts] | type[Sounds] | None] = None
    EXAMPLE: ClassVar[Mapping[str, Any]]

    def __init__(self, config: ConfigT, context: TaskContext) -> None:
        self._config = config
        self._context = context
        if "output" in self.CONFIG.model_fields:  # most tasks read one output
            self._output = self._named_output("output", config.output)  # type: ignore[attr-defined]

    @property
    def finding(self) -> Any:
        """Return FINDING, or a narrower type where the configuration tells."""
        return self.FINDING

    def options(self, parameters: Mapping[str, Any]) -> ConfigT:
        """Return the config with the request's parameters, validated before anything runs.

        Raises:
            InvalidRequestError: the task does not have a parameter, or a value is out of range.
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
    def predict(self, outputs: Outputs, contents: Sequence[Any], options: ConfigT) -> Sequence[Finding] | None:
        """Return the prediction for each item of the batch, or None if the task predicts nothing.

        Args:
            outputs: outputs of the network by name; behind the tokens of a text there may be padding.
            contents: for each item, the ``Placement`` of its picture on the network's canvas, or the ``Encoding`` of
                its text as tokens.
            options: config of the task.

        Raises:
            ConfigError: an output does not have the configured shape.
            InvalidRequestError: the options do not fit the model.
        """

    def predict_all(self, runs: Sequence[TaskRun], options: ConfigT) -> Sequence[Finding] | None:
        """Return the predictions of all runs of a request, in the order of its items; None if there are none.

        Raises:
            ConfigError, InvalidRequestError: as ``predict``.
        """
        first, *rest = runs
        predictions = self.predict(first.outputs, first.contents, options)
        if predictions is None or not rest:
            return predictions
        found = dict(zip(first.indices, predictions, strict=True))
        for each in rest:
            found.update(zip(each.indices, self.predict(each.outputs, each.contents, options) or (), strict=True))
        return [found[index] for index in range(len(found))]

    def _named_output(self, key: str, name: str | None) -> str:
        """Return the output that a key of the config names, by default the first.

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


class TextTask(Task[ConfigT]):
    """Task whose predictions are about texts."""

    TAKES = Texts

    def _token_output(self, outputs: Outputs, name: str, last: str, items: int) -> NDArray[Any]:
        """Return an output of shape (N, L, ``last``).

        Raises:
            ConfigError: it has another shape.
        """
        found = outputs[name]
        if found.ndim != 3 or len(found) != items:
            raise ConfigError(f"output '{name}': found shape {list(found.shape)}, expected ({items}, tokens, {last})")
        return found


class DrawingTask(Task[ConfigT]):
    """Task whose predictions can be drawn."""

    @abstractmethod
    def draw(self, finding: Any, picture: Callable[[], Image.Image]) -> bytes:
        """Return the drawn prediction for one item, as a PNG.

        Args:
            finding: prediction for the item.
            picture: decodes the picture sent, upright at full size; raises InputMismatchError if none was sent.
        """


def check_items(found: int, placements: Sequence[Placement]) -> None:
    """Raise unless outputs and inputs have the same number of items.

    Raises:
        ConfigError: the message has both counts.
    """
    if found != len(placements):
        raise ConfigError(f"the outputs: found {found} items, expected {len(placements)}")


def rounded(value: float) -> float:
    """Round to seven significant digits: float32 precision without the noise of printing it as a double."""
    return float(f"{value:.7g}")
