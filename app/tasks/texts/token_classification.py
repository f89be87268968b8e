"""Task token-classification: spans of characters with labels, such as names of persons and places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from app.schema import Body, Fraction, Section
from app.tasks.probabilities import activate
from app.tasks.task import Outputs, Prediction, TextTask, rounded
from app.text.text import Encoding

# Prefixes of labels (IOB, IOBES and BILOU), and those that begin a span.
_PREFIXES: Final = ("B", "I", "E", "L", "S", "U")
_BEGINNINGS: Final = ("B", "S", "U")


class TokenClassificationConfig(Section):
    """Conversion of class scores of tokens to spans."""

    output: str | None = Field(default=None, description="Output with scores, (N, L, classes); default: the first.")
    aggregation: Literal["simple", "first"] = Field(
        default="simple",
        description="simple: neighbouring tokens of one label are a span; first: a word has the label of its first"
        " token.",
    )
    outside: str = Field(default="O", description="Label of tokens that belong to no span.")
    threshold: Fraction = Field(default=0.0, description="Least score of a span.")


class SpanBody(Body):
    """Span of a text, in characters."""

    label: str
    score: float
    start: int
    end: int
    text: str


@dataclass(slots=True)
class _Unit:
    """Token or word with its label without prefix, whether the label begins a span, and its probability."""

    first: int
    last: int
    label: str
    begins: bool
    score: float


class TokenClassificationTask(TextTask[TokenClassificationConfig]):
    """Spans from one output of shape (N, L, classes); labels may have the prefixes B- and I-."""

    NAME = "token-classification"
    CONFIG = TokenClassificationConfig
    PARAMETERS = {"aggregation": "simple or first", "threshold": "least score of a span"}
    FINDING = list[SpanBody]
    EXAMPLE = {"predictions": [{"label": "LOC", "score": 0.99, "start": 10, "end": 16, "text": "Vienna"}]}

    def predict(
        self, outputs: Outputs, encodings: Sequence[Encoding], options: TokenClassificationConfig
    ) -> list[list[Prediction]]:
        """Return the spans of each text in their order."""
        found = self._token_output(outputs, self._output, "classes", len(encodings))
        self._context.check_labels(found.shape[2])
        return [
            self._spans(activate(rows[: len(encoding.ids)].astype(np.float64), "softmax"), encoding, options)
            for rows, encoding in zip(found, encodings, strict=True)
        ]

    def _spans(
        self, probabilities: NDArray[Any], encoding: Encoding, options: TokenClassificationConfig
    ) -> list[Prediction]:
        spans: list[list[_Unit]] = []
        previous: _Unit | None = None
        for unit in self._units(probabilities, encoding, by_word=options.aggregation == "first"):
            if unit.label != options.outside:
                is_next = previous is not None and previous.label == unit.label and not unit.begins
                if is_next and encoding.sequences[spans[-1][-1].last] == encoding.sequences[unit.first]:
                    spans[-1].append(unit)
                else:
                    spans.append([unit])
            previous = unit
        found = (_span(encoding, span) for span in spans)
        return [span for span in found if span["score"] >= options.threshold]

    def _units(self, probabilities: NDArray[Any], encoding: Encoding, *, by_word: bool) -> list[_Unit]:
        """Return the tokens except special ones, or the words, each with the label of its first token."""
        units: list[_Unit] = []
        for index, row in enumerate(probabilities):
            if encoding.sequences[index] is None:
                continue
            if by_word and units and _is_same_word(encoding, units[-1].last, index):
                units[-1].last = index
                continue
            best = int(row.argmax())
            label = self._context.label(best)
            prefix, dash, rest = label.partition("-")
            has_prefix = bool(dash) and prefix in _PREFIXES
            units.append(
                _Unit(
                    first=index,
                    last=index,
                    label=rest if has_prefix else label,
                    begins=has_prefix and prefix in _BEGINNINGS,
                    score=float(row[best]),
                )
            )
        return units


def _is_same_word(encoding: Encoding, first: int, second: int) -> bool:
    return (encoding.sequences[first], encoding.words[first]) == (encoding.sequences[second], encoding.words[second])


def _span(encoding: Encoding, units: Sequence[_Unit]) -> Prediction:
    start, end, text = encoding.covered(units[0].first, units[-1].last)
    score = rounded(sum(unit.score for unit in units) / len(units))
    return {"label": units[0].label, "score": score, "start": start, "end": end, "text": text}
