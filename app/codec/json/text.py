"""JSON bytes -> Python values, measured before anything is built."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import orjson

from app.codec.json.cost import Measure, measure
from app.codec.json.lists import cut_lists
from app.codec.json.pieces import loads_in_pieces, non_finite
from app.errors import InvalidRequestError
from app.memory.allowance import charge

# Other threads wait for the parser and for the release of what it made. Texts are parsed at once up to so many bytes,
# or up to so many more that become so much: numbers are spelt in three characters or in twenty.
AT_ONCE: Final = 1 << 20
_AT_ONCE_SPARSE: Final = 1 << 22
_AT_ONCE_PARSED: Final = 1 << 25
# Texts of at most so many bytes become so few objects that the garbage collector need not be held off.
_SMALL: Final = 1 << 14


def is_parsed_at_once(body: bytes | bytearray, found: Measure) -> bool:
    """Whether a text is parsed as a whole; others are parsed in pieces, so that other threads run in between."""
    return len(body) <= AT_ONCE or (len(body) <= _AT_ONCE_SPARSE and found.parsed_bytes <= _AT_ONCE_PARSED)


def parse_json(body: bytes | bytearray, *, max_depth: int) -> Any:
    """The value of a JSON text.

    Raises:
        InvalidRequestError: not JSON, NaN or Infinity (which JSON has not), or nested deeper than max_depth.
        RequestTooLargeError, QueueFullError: there is no memory for what it becomes.
    """
    return _parse(body, max_depth, 0)


def parse_request_json(body: bytes | bytearray, *, max_depth: int) -> Any:
    """The same of a text that has "inputs"; large tensors there may be ``Numbers`` in place of lists.

    Raises:
        As ``parse_json``.
    """
    cut = cut_lists(body) if len(body) <= _AT_ONCE_SPARSE else None
    if cut is None:
        return _parse(body, max_depth, 0)
    found = cut.measure(max_depth)
    if found.depth > max_depth or not is_parsed_at_once(body, found):
        return _parse(body, max_depth, 0)
    charge(found.parsed_bytes)
    with suppress(orjson.JSONDecodeError):
        value = cut.value(orjson.loads(cut.around))
        if value is not None:
            return value
    return _parse(body, max_depth, found.parsed_bytes)


def _parse(body: bytes | bytearray, max_depth: int, held: int) -> Any:
    """held: bytes that are charged for it already."""
    found = measure(body, enough=max_depth)
    if found.depth > max_depth:
        raise InvalidRequestError(
            f"the JSON body is nested too deep: found {found.depth} levels, expected at most {max_depth}",
            found=found.depth,
            limit=max_depth,
        )
    charge(max(0, found.parsed_bytes - held))
    if len(body) <= _SMALL:
        return _loads(body)
    with without_collector():
        return _loads(body) if is_parsed_at_once(body, found) else loads_in_pieces(body)


def _loads(body: bytes | bytearray) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as exc:
        place = f"line {exc.lineno} column {exc.colno}"
        raise InvalidRequestError(non_finite(exc, place) or f"the body is not JSON: {exc}") from None


@contextmanager
def without_collector() -> Iterator[None]:
    """Do not look for cycles while millions of lists are made that have none: the search takes longer than they do."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
