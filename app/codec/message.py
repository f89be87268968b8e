"""What a request says, whatever it was written in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from app.errors import InvalidRequestError
from app.signature import Inputs, Signature
from app.wording import brief


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A request, its inputs still encoded.

    outputs: names of raw outputs wanted, True for all, False for none, None for the default of the kind of request.
    decode: makes the inputs, given what the model takes; raises ServiceError. Heavy: belongs in a worker thread.
    is_long_text: whether the inputs are a long JSON text.
    """

    decode: Callable[[Signature], Inputs]
    model: str | None = None
    version: int | None = None
    outputs: tuple[str, ...] | bool | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    is_long_text: bool = False


def read_version(value: object) -> int | None:
    """A version as JSON numbers, strings and query strings have it.

    Raises:
        InvalidRequestError: for anything but a whole number from 1 on.
    """
    if value is None:
        return None
    text = str(value)
    if isinstance(value, bool) or not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) > 0):
        raise InvalidRequestError(f"version: found {brief(value)}, expected a whole number such as 1")
    return int(text)
