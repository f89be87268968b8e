"""JSON bytes -> Python values, counted before anything is built."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import orjson

from app.codec.json.limits import check_counts, check_parsed, not_json
from app.codec.json.lists import cut_long, put_back
from app.errors import InvalidRequestError

# Texts of at most so many bytes become so few objects that the garbage collector need not be held off.
_SMALL: Final = 1 << 14


def parse_json(body: bytes | bytearray) -> Any:
    """Return the value of a JSON text.

    Raises:
        InvalidRequestError: not JSON, NaN or Infinity (which JSON has not), or nested too deep.
        RequestTooLargeError, QueueFullError: not enough memory for what it becomes, or it holds more values, lists,
            strings or escapes than a request needs.
    """
    check_counts(body)
    check_parsed(body)
    return _loads(body)


def parse_request_json(body: bytes | bytearray) -> Any:
    """The same of a text that has "inputs"; a large tensor there is a ``LongList``, long base64 a memoryview.

    Raises:
        As ``parse_json``.
    """
    check_counts(body)
    if (cut := cut_long(body)) is not None:
        around, found = cut
        check_parsed(around)
        with suppress(InvalidRequestError):  # the place of the fault is told of the whole text
            document = _loads(around)
            if put_back(document, found):
                return document
    check_parsed(body)
    return _loads(body)


def _loads(body: bytes | bytearray) -> Any:
    try:
        if len(body) <= _SMALL:
            return orjson.loads(body)
        with without_collector():
            return orjson.loads(body)
    except orjson.JSONDecodeError as exc:
        raise not_json(exc, f"line {exc.lineno} column {exc.colno}") from None


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
