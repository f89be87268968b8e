"""Texts in the JSON of a request."""

from __future__ import annotations

from typing import Any

from app.errors import InvalidRequestError, RequestTooLargeError
from app.messages import brief
from app.signature import Inputs, Signature
from app.text.text import MAX_TEXTS, Text, Texts


def read_texts(value: object, key: str) -> tuple[Text, ...]:
    """Return the texts of a request: a string, or a list of strings, of pairs of strings, or of lists of token ids.

    Raises:
        InvalidRequestError: the value is something else, or empty.
        RequestTooLargeError: there are too many.
    """
    items: list[Any] = value if isinstance(value, list) else [value]
    if isinstance(value, list) and value and all(type(item) is int for item in value):  # one text as token ids
        items = [value]
    if len(items) > MAX_TEXTS:
        raise RequestTooLargeError(
            f"{key}: found {len(items):,} texts, expected at most {MAX_TEXTS:,}", found=len(items), limit=MAX_TEXTS
        )
    if not items:
        raise InvalidRequestError(f"{key}: found an empty list, expected at least one text")
    return tuple(_text(item, key if len(items) == 1 else f"{key}[{index}]") for index, item in enumerate(items))


def _text(item: object, where: str) -> Text:
    if isinstance(item, str):
        return Text(item)
    if isinstance(item, list) and item:
        if all(type(each) is int for each in item):
            return Text(tuple(item))
        if len(item) == 2 and all(isinstance(each, str) for each in item):
            return Text(item[0], item[1])
    raise InvalidRequestError(
        f"{where}: found {brief(item)}, expected a string, a pair of strings, or a list of token ids"
    )


def text_inputs(texts: tuple[Text, ...], signature: Signature) -> Inputs:
    """Return the inputs of a request of texts.

    Raises:
        InputMismatchError: the model takes no texts.
    """
    return {signature.content_port("text").name: Texts(texts)}
