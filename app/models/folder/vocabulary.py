"""Labels of classes in a file: one a line, or the vocabulary of a speech recogniser."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import orjson

# What sherpa-onnx and icefall call a file with lines of a token and its number.
TOKENS: Final = "tokens.txt"
_JSON: Final = ".json"
_BETWEEN: Final = " \t"


def read_vocabulary(text: str, name: str) -> tuple[str, ...]:
    """Return the labels of the classes in their order.

    * Lines of one label. Spaces and tabs around it are removed; other white space may be a character that a model
      recognises. An empty line is a class without a label.
    * ``tokens.txt``: lines of a token and its number; a line of a number alone is that of a space.
    * JSON: a list of labels, or an object of token to number, as ``vocab.json`` of Hugging Face.

    Args:
        text: content of the file.
        name: of the file.

    Raises:
        ValueError: it has another form, or the numbers are not 0, 1, 2, ... each once.
    """
    if name.endswith(_JSON):
        return _from_json(text)
    if name == TOKENS:
        return _from_lines(text)
    return tuple(line.strip(_BETWEEN) for line in text.split("\n"))


def _from_lines(text: str) -> tuple[str, ...]:
    numbers: dict[str, int] = {}
    for index, line in enumerate(text.split("\n"), 1):
        *token, number = line.rsplit(maxsplit=1) or [""]
        if not (number.isdecimal() and number.isascii() and len(number) < 10):
            raise ValueError(f"line {index}: found no number at its end, expected a token and its number")
        numbers[token[0] if token else " "] = int(number)
    return _ordered(numbers)


def _from_json(text: str) -> tuple[str, ...]:
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as exc:
        raise ValueError(f"not JSON: {exc}") from None
    if isinstance(document, list) and document and all(isinstance(each, str) for each in document):
        return tuple(document)
    if isinstance(document, dict) and document and all(type(each) is int for each in document.values()):
        return _ordered(document)
    raise ValueError("found other JSON, expected a list of labels, or an object of token to number")


def _ordered(numbers: Mapping[str, int]) -> tuple[str, ...]:
    tokens = {number: token for token, number in numbers.items()}
    for number in range(len(numbers)):
        if number not in tokens:
            raise ValueError(f"found {len(numbers)} tokens and none of number {number}, expected each number once")
    return tuple(tokens[number] for number in range(len(numbers)))
