"""Task text-recognition: the text in a picture of one line, by CTC decoding with a dictionary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray
from pydantic import Field

from app.errors import ConfigError
from app.images.placement import Placement
from app.schema import Body, Section
from app.tasks.ctc import Decoded, decode, symbols
from app.tasks.task import Outputs, Prediction, Task, TaskContext, check_items, rounded


class TextRecognitionConfig(Section):
    """Conversion of class scores of columns to a text. The dictionary is given by ``labels``."""

    output: str | None = Field(
        default=None, description="Output with scores, (N, columns, classes), class 0 is the blank; default: the first."
    )
    characters: bool = Field(default=False, description="Return each character with its score and position too.")


class CharacterBody(Body):
    """Character of a text, and its centre in pixels of the picture sent, from the left."""

    text: str
    score: float
    x: float


class TextBody(Body):
    """Text in a picture, with the mean probability of its characters, 0 without any."""

    text: str
    score: float
    characters: list[CharacterBody] = []


class TextRecognitionTask(Task[TextRecognitionConfig]):
    """Text from one output of shape (N, columns, classes)."""

    NAME = "text-recognition"
    CONFIG = TextRecognitionConfig
    PARAMETERS = {"characters": "true for the position of each character"}
    FINDING = TextBody
    EXAMPLE = {"predictions": {"text": "Vienna", "score": 0.99}}

    def __init__(self, config: TextRecognitionConfig, context: TaskContext) -> None:
        super().__init__(config, context)
        port = context.signature.output(self._output)
        classes = (
            port.spec.shape[2] if port is not None and port.spec is not None and len(port.spec.shape) == 3 else None
        )
        self._symbols = symbols(context.labels, classes) if classes else ()

    def predict(
        self, outputs: Outputs, placements: Sequence[Placement], options: TextRecognitionConfig
    ) -> list[Prediction]:
        """Return the text of each item."""
        scores = self._scores(outputs)
        check_items(len(scores), placements)
        if len(self._symbols) != scores.shape[2]:
            self._symbols = symbols(self._context.labels, scores.shape[2])
        found = []
        for each, placement in zip(decode(scores), placements, strict=True):
            characters = [self._symbols[index] for index in each.classes]
            row: Prediction = {"text": "".join(characters), "score": rounded(each.score)}
            if options.characters:
                row["characters"] = _positions(characters, each, placement, scores.shape[1])
            found.append(row)
        return found

    def _scores(self, outputs: Outputs) -> NDArray[Any]:
        scores = outputs[self._output]
        if scores.ndim != 3 or not scores.shape[2] or scores.dtype.kind not in "fV":
            raise ConfigError(
                f"output '{self._output}': found shape {list(scores.shape)}, expected scores (N, columns, classes)"
            )
        return scores


def _positions(characters: Sequence[str], found: Decoded, placement: Placement, columns: int) -> list[Prediction]:
    """Return text, score and centre of each character; the columns span the canvas."""
    scale = placement.canvas[0] / columns * placement.picture[0] / placement.resized[0]
    return [
        {"text": text, "score": rounded(float(score)), "x": round(min((step + 0.5) * scale, placement.picture[0]), 2)}
        for text, score, step in zip(characters, found.probabilities, found.steps.tolist(), strict=True)
    ]
