"""Contents of a request that become the inputs of a model: pictures, texts and sounds, each by a converter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray

import engine


class ContentRun(NamedTuple):
    """Inputs of one run.

    Attributes:
        tensors: inputs of the model by name.
        contents: for each row, what it is: the place of a picture, the tokens of a text, or the place of a window in a
            sound.
        indices: for each row, the position of its picture, text or sound in the request.
    """

    tensors: dict[str, NDArray[Any]]
    contents: tuple[Any, ...]
    indices: tuple[int, ...]


class Converted(NamedTuple):
    """Runs of a request's contents, and the seconds that decoding them took."""

    runs: list[ContentRun]
    decode_s: float = 0.0


class Converter(Protocol):
    """Conversion of one kind of contents to the inputs of one model, for many threads at once.

    Attributes:
        has_fixed_size: whether all rows have one shape, so that requests can share runs.
    """

    @property
    def port(self) -> engine.Port:
        """Return the input that takes the contents."""

    @property
    def has_fixed_size(self) -> bool: ...

    def convert(self, value: Any, admit: Callable[[NDArray[Any]], None]) -> Converted:
        """Return the runs for contents.

        Args:
            value: the pictures, texts or sounds of a request.
            admit: called with a batch before it is filled; raises if a batch of that shape will not be run.

        Raises:
            ServiceError: the contents cannot be converted, are too large, or the request was cancelled.
        """

    def is_light(self, value: Any) -> bool:
        """Return whether conversion is cheap."""

    def examples(self) -> list[ContentRun]:
        """Return runs to compile for, the most usual first; none where zeros of the file's shape will do.

        The first is also run and, if it has contents, predicted when the model is loaded.
        """
