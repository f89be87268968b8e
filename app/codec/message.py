"""A request to /infer in any format, its inputs still encoded."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from app.errors import InvalidRequestError
from app.messages import brief, cut
from app.signature import Inputs, Signature

# Limit of output names in a request.
MAX_OUTPUTS: Final = 1_000
_MAX_NAME: Final = 10_000
# Tags of versions begin with a letter (app/models/folder/layout.py).
_TAG: Final = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}")
_NONE: Final[Mapping[str, Any]] = {}


class Message(NamedTuple):
    """Contents of a request.

    Args:
        decode: makes the inputs for a model's signature; raises ServiceError. Slow, so it is called in a thread.
        outputs: names of raw outputs, True for all, False for none, None for the default of the kind of request.
        is_long_text: whether the inputs are a long JSON text.
    """

    decode: Callable[[Signature], Inputs]
    model: str | None = None
    version: int | str | None = None
    outputs: tuple[str, ...] | bool | None = None
    parameters: Mapping[str, Any] = _NONE
    is_long_text: bool = False


def read_version(value: object) -> int | str | None:
    """Return a version from JSON or a query string: a number, or a tag.

    Raises:
        InvalidRequestError: the value is neither.
    """
    if value is None:
        return None
    text = str(value)
    if not isinstance(value, bool) and text.isascii():
        if text.isdigit() and len(text) < 10 and int(text) > 0:
            return int(text)
        if isinstance(value, str) and _TAG.fullmatch(text):
            return text
    raise InvalidRequestError(f"version: found {brief(value)}, expected a whole number such as 1, or a tag")


def output_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the requested outputs.

    Raises:
        InvalidRequestError: a name is given twice, or there are too many.
    """
    if len(names) > MAX_OUTPUTS:
        raise InvalidRequestError(f"outputs: found {len(names)} names, expected at most {MAX_OUTPUTS}")
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidRequestError(f"outputs: found '{cut(name)}' twice, expected each name once")
        seen.add(name)
    if (longest := max(map(len, names), default=0)) > _MAX_NAME:
        raise InvalidRequestError(f"outputs: found a name of {longest:,} characters, expected at most {_MAX_NAME:,}")
    return tuple(names)
