"""Token inputs of a model: encodings of texts to tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import engine
from app.content import ContentRun, Converted, kinds_by_input
from app.errors import ConfigError
from app.messages import quoted
from app.text.config import TextConfig
from app.text.text import TOKENIZER, Encoding, Text, Texts
from app.text.tokenizer import Tokenizer, open_tokenizer

_KINDS: Final = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
# Other names in use, by kind.
_ALIASES: Final = {
    "input_ids": ("ids", "tokens", "input", "text"),
    "attention_mask": ("mask", "input_mask"),
    "token_type_ids": ("segment_ids", "type_ids", "token_type"),
    "position_ids": ("positions",),
}
# Most tokens of one run, so that a long request needs little memory and lets others run in between.
MAX_RUN_TOKENS: Final = 8_192
_EXAMPLE: Final = "The quick brown fox jumps over the lazy dog, then it sleeps all day in the shadow of a tree."
_SHORT: Final = "a fox"


class TextInputs:
    """Conversion of texts to the inputs of one model.

    Texts of equal length run together, so that no token is padding; a model of fixed length gets padded texts.

    Args:
        ports: inputs of the model.
        config: table [text].
        tokenizer: tokenizer of the model.

    Raises:
        ConfigError: the inputs are not those of a text model.
    """

    def __init__(self, ports: Sequence[engine.Port], config: TextConfig, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._ports = _by_kind(ports, config)
        self.port = self._ports["input_ids"]
        spec = self.port.spec
        length = spec.shape[1] if spec is not None and len(spec.shape) == 2 else None
        self._fixed_length = length if isinstance(length, int) else None
        if self._fixed_length is not None and self._fixed_length < tokenizer.max_tokens:
            raise ConfigError(
                f"text.max_tokens: found {tokenizer.max_tokens}, expected at most {self._fixed_length}, the length of"
                f" input '{self.port.name}'"
            )

    def convert(self, texts: Texts, admit: Callable[[NDArray[Any]], None] = lambda batch: None) -> Converted:
        """Return the runs for the texts, the shortest first.

        Raises:
            ServiceError: a text cannot be tokenised; see ``Tokenizer.encode``.
        """
        encodings = self.tokenizer.encode(texts.items)
        order = sorted(range(len(encodings)), key=lambda index: len(encodings[index].ids))
        runs: list[list[int]] = []
        for index in order:
            length = self._length(encodings[index])
            last = runs[-1] if runs else []
            if not last or self._length(encodings[last[0]]) != length or (len(last) + 1) * length > MAX_RUN_TOKENS:
                runs.append(last := [])
            last.append(index)
        return Converted([self._run(indices, tuple(encodings[index] for index in indices)) for indices in runs])

    @property
    def has_fixed_size(self) -> bool:
        """Return False: texts of one request run together by length, and requests share no runs."""
        return False

    def is_light(self, texts: Texts) -> bool:
        """Return False: tokenising belongs into a thread."""
        return False

    def examples(self) -> list[ContentRun]:
        """Return the runs for one and several texts of a medium and a small length, one of medium length first.

        Compiled for these, a model with dynamic sizes has code for all sizes.
        """
        texts = [(Text(each),) * count for each in (_EXAMPLE, _SHORT) for count in (1, 3)]
        # Without contents, because not every text fits the task: one for fill-mask needs a mask.
        return [self.convert(Texts(each)).runs[0]._replace(contents=(), indices=()) for each in texts]

    def _length(self, encoding: Encoding) -> int:
        return self._fixed_length or len(encoding.ids)

    def _run(self, indices: list[int], encodings: tuple[Encoding, ...]) -> ContentRun:
        length = self._length(encodings[0])
        tensors: dict[str, NDArray[Any]] = {}
        for kind, port in self._ports.items():
            dtype = np.dtype(np.int64) if port.spec is None else port.spec.dtype
            array = np.full((len(encodings), length), self.tokenizer.pad_id if kind == "input_ids" else 0, dtype)
            for row, encoding in zip(array, encodings, strict=True):
                row[: len(encoding.ids)] = _values(kind, encoding)
            tensors[port.name] = array
        return ContentRun(tensors, encodings, tuple(indices))


def _values(kind: str, encoding: Encoding) -> Sequence[int] | int:
    if kind == "input_ids":
        return encoding.ids
    if kind == "token_type_ids":
        return encoding.type_ids
    return range(len(encoding.ids)) if kind == "position_ids" else 1


def _by_kind(ports: Sequence[engine.Port], config: TextConfig) -> dict[str, engine.Port]:
    """Return the model's inputs in their order, by what they take.

    Raises:
        ConfigError: an input takes none of these, or a key names no input.
    """
    given = kinds_by_input("text", {kind: getattr(config, kind) for kind in _KINDS}, ports)
    found: dict[str, engine.Port] = {}
    for port in ports:
        kind: str | None = given.get(port.name) or _kind_of(port.name) or ("input_ids" if len(ports) == 1 else None)
        if kind is None or kind in found:
            raise ConfigError(
                f"text: input '{port.name}': expected one key of {quoted(_KINDS)} in the table [text] to name it"
            )
        found[kind] = port
    if "input_ids" not in found:
        raise ConfigError(f"text.input_ids: missing, expected one of {quoted(port.name for port in ports)}")
    return found


def _kind_of(name: str) -> str | None:
    return next((kind for kind in _KINDS if name == kind or name in _ALIASES[kind]), None)


def open_text_inputs(
    ports: Sequence[engine.Port], path: Path | None, config: TextConfig | None, *, is_required: bool
) -> TextInputs | None:
    """Return the text inputs of a model, or None if it takes no texts.

    Args:
        ports: inputs of the model.
        path: where ``tokenizer.json`` would be; None if the version has no folder.
        config: table [text], or None.
        is_required: whether the task needs texts.

    Raises:
        ConfigError: the file is missing though the task needs it, or does not fit the model.
    """
    if not is_required and config is None:
        return None
    table = config or TextConfig()
    tokenizer = open_tokenizer(path, table.max_tokens)
    if tokenizer is None:
        raise ConfigError(f"{TOKENIZER}: not found beside the model, expected one, because the model takes texts")
    return TextInputs(ports, table, tokenizer)
