"""Task fill-mask: the most probable tokens in place of a mask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from pydantic import Field

from app.errors import InputMismatchError
from app.memory.reservation import charge, check
from app.schema import Body, Section
from app.tasks.probabilities import activate
from app.tasks.task import Outputs, Prediction, TextTask, rounded
from app.text.text import Encoding

# Memory of a predicted token.
_WORD_BYTES: Final = 500


class FillMaskConfig(Section):
    """Conversion of scores of tokens to words for a mask."""

    output: str | None = Field(default=None, description="Output with scores, (N, L, vocabulary); default: the first.")
    mask: str = Field(default="[MASK]", description="Token that stands for the unknown word, as [MASK] or <mask>.")
    top_k: int = Field(default=5, ge=1, le=1_000, description="Number of tokens returned, most probable first.")


class TokenBody(Body):
    """Token for a mask; ``mask`` is the number of the mask in its text."""

    mask: int
    token: str
    index: int
    probability: float


class FillMaskTask(TextTask[FillMaskConfig]):
    """Tokens for the masks of a text, from one output of shape (N, L, vocabulary)."""

    NAME = "fill-mask"
    CONFIG = FillMaskConfig
    PARAMETERS = {"top_k": "how many tokens"}
    FINDING = list[TokenBody]
    EXAMPLE = {"predictions": [{"mask": 0, "token": "paris", "index": 3000, "probability": 0.87}]}

    def predict(
        self, outputs: Outputs, encodings: Sequence[Encoding], options: FillMaskConfig
    ) -> list[list[Prediction]]:
        """Return the top_k tokens for each mask of each text."""
        found = self._token_output(outputs, self._output, "vocabulary", len(encodings))
        predictions: list[list[Prediction]] = []
        for rows, encoding in zip(found, encodings, strict=True):
            masks = [at for at, token in enumerate(encoding.ids) if self._context.token(token) == options.mask]
            if not masks:
                raise InputMismatchError(f"the text: found no {options.mask}, expected one where a word is unknown")
            predictions.append([])
            for number, at in enumerate(masks):
                check()
                charge(_WORD_BYTES * options.top_k)
                probabilities = activate(rows[at][None].astype(np.float64), "softmax")[0]
                for index in np.argsort(-probabilities, kind="stable")[: options.top_k]:
                    word = {"mask": number, "token": self._context.token(int(index)), "index": int(index)}
                    predictions[-1].append({**word, "probability": rounded(float(probabilities[index]))})
        return predictions
