"""Contents of a request that become the inputs of a model: pictures, texts and sounds, each by a converter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray

import engine
from app.errors import ConfigError
from app.messages import cut, quoted


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


def kinds_by_input(table: str, inputs: Mapping[str, str | None], ports: Sequence[engine.Port]) -> dict[str, str]:
    """Return what the inputs named in a table of config.toml take, by the name of the input.

    Args:
        table: name of the table, for messages.
        inputs: for each kind of input, the name that the table has for it, or None.
        ports: inputs of the model.

    Raises:
        ConfigError: the model has no such input.
    """
    names = [port.name for port in ports]
    given = {name: kind for kind, name in inputs.items() if name is not None}
    for name, kind in given.items():
        if name not in names:
            raise ConfigError(f"{table}.{kind}: found '{cut(name)}', expected one of {quoted(names)}")
    return given
