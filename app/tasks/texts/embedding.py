"""Task embedding: a vector for each text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from app.errors import ConfigError, InvalidRequestError
from app.schema import Body, Positive, Section
from app.tasks.task import Outputs, Prediction, TextTask
from app.text.text import Encoding


class EmbeddingConfig(Section):
    """Conversion of the vectors of tokens to one vector."""

    output: str | None = Field(
        default=None, description="Output with vectors, (N, L, width) of tokens or (N, width); default: the first."
    )
    pooling: Literal["mean", "cls", "last"] = Field(
        default="mean", description="The vector of a text: mean of its tokens, its first token, or its last."
    )
    normalise: bool = Field(default=True, description="Scale vectors to length 1.")
    dimensions: Positive | None = Field(
        default=None, description="Leading values that are kept, for models trained for that; default: all."
    )


class EmbeddingBody(Body):
    """Vector of a text."""

    embedding: list[float]
    tokens: int
    truncated: bool


class EmbeddingTask(TextTask[EmbeddingConfig]):
    """Embedding from one output of shape (N, L, width) or (N, width)."""

    NAME = "embedding"
    CONFIG = EmbeddingConfig
    PARAMETERS = {
        "dimensions": "how many leading values of each vector",
        "normalise": "whether vectors are scaled to length 1",
    }
    FINDING = EmbeddingBody
    EXAMPLE = {"predictions": {"embedding": [0.6, -0.8], "tokens": 5, "truncated": False}}

    def predict(self, outputs: Outputs, encodings: Sequence[Encoding], options: EmbeddingConfig) -> list[Prediction]:
        """Return the vector of each text, as float32."""
        found = outputs[self._output]
        if found.ndim not in (2, 3) or len(found) != len(encodings):
            raise ConfigError(
                f"output '{self._output}': found shape {list(found.shape)}, expected ({len(encodings)}, tokens, width)"
                f" or ({len(encodings)}, width)"
            )
        vectors = found if found.ndim == 2 else _pool(found, encodings, options.pooling)
        width = vectors.shape[1]
        if options.dimensions is not None and options.dimensions > width:
            raise InvalidRequestError(f"dimensions: found {options.dimensions}, expected at most {width}")
        vectors = vectors[:, : options.dimensions].astype(np.float64)
        if options.normalise:
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            vectors = vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
        return [
            {"embedding": vector, "tokens": len(encoding.ids), "truncated": encoding.is_truncated}
            for vector, encoding in zip(vectors.astype(np.float32), encodings, strict=True)
        ]


def _pool(tokens: NDArray[Any], encodings: Sequence[Encoding], pooling: str) -> NDArray[Any]:
    """Return a vector for each text from the vectors of its tokens, without those of padding."""
    lengths = [len(encoding.ids) for encoding in encodings]
    if pooling == "cls":
        return tokens[:, 0]
    if pooling == "last":
        return tokens[np.arange(len(tokens)), np.subtract(lengths, 1)]
    return np.stack([row[:length].mean(axis=0, dtype=np.float64) for row, length in zip(tokens, lengths, strict=True)])
