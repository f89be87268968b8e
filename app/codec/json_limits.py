"""Limits of a JSON text, counted in one pass over its bytes before it is parsed.

Parsing, and freeing the result, holds the interpreter lock. So bytes, values, lists, strings and escapes are limited;
long lists of numbers and base64 are exempt (json_lists.py). Counts include the contents of strings, so they may be too
high, but never too low.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import orjson

from app.errors import InvalidRequestError, RequestTooLargeError
from app.memory.reservation import charge

# Shorter texts cannot exceed a limit.
COUNTED_BYTES: Final = 1 << 18
MAX_BYTES: Final = 8 << 20
# numpy's limit of dimensions; requests wrap tensors in a few objects.
MAX_DEPTH: Final = 32
MAX_VALUES: Final = 1 << 19
MAX_LISTS: Final = 1 << 17
MAX_STRINGS: Final = 1 << 18
MAX_ESCAPES: Final = 1 << 18
BINARY: Final = "send tensors as .npy to /infer or in binary to /v2, and pictures as files"

# Bytes in CPython on 64 bits: a value with its references from a list and two arrays; a list; an object; a string, most
# likely a key.
_VALUE: Final = 16 + 32 + 8 + 8
_LIST: Final = 112
_OBJECT: Final = 200
_STRING: Final = 56 + 64
# Block size that fits the processor's cache.
_BLOCK: Final = 1 << 18
_NON_FINITE: Final = re.compile(r"-?(nan|inf(inity)?)\b", re.IGNORECASE)
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))


def check_counts(body: bytes | bytearray) -> None:
    """Check how many lists, strings and escapes a JSON text has.

    Raises:
        RequestTooLargeError: the text has more lists, strings or escapes than any sensible request.
    """
    if len(body) <= COUNTED_BYTES:
        return
    with memoryview(body) as text:
        _check("lists", count(text, b"["), MAX_LISTS)
        escapes = count(text, b"\\")
        _check("escapes", escapes, MAX_ESCAPES)
        _check("strings", (count(text, b'"') - escapes) // 2, MAX_STRINGS)


def check_parsed(text: bytes | bytearray) -> None:
    """Check the limits that apply when a text is parsed as a whole, and charge the memory.

    Raises:
        InvalidRequestError: it is nested too deep.
        RequestTooLargeError, QueueFullError: it is too long, or there is not enough memory.
    """
    _check("bytes beside evenly nested lists of numbers and base64", len(text), MAX_BYTES)
    lists, objects, values = text.count(b"["), text.count(b"{"), text.count(b",") + 1
    _check("values beside evenly nested lists of numbers and base64", values, MAX_VALUES)
    if lists + objects > MAX_DEPTH and (found := depth(text)) > MAX_DEPTH:
        raise InvalidRequestError(
            f"the JSON body is nested too deep: found {found} levels, expected at most {MAX_DEPTH}",
            found=found,
            limit=MAX_DEPTH,
        )
    strings = text.count(b'"') // 2
    texts = len(text) if strings else 0
    charge(texts + values * _VALUE + lists * _LIST + objects * _OBJECT + strings * _STRING)


def depth(text: bytes | bytearray) -> int:
    """Return the deepest nesting of lists and objects; meaningless for a text that is not JSON."""
    if b"\\" in text:
        # Remove escaped backslashes, then escaped quotes: the remaining quotes begin and end strings.
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    outside = b"".join(text.split(b'"')[::2])
    brackets = np.frombuffer(outside.translate(None, _NOT_BRACKETS), np.uint8)
    # "[" is 0x5B and "{" 0x7B, the closing ones are two higher each.
    steps = np.where((brackets & 0x5F) == ord("["), np.int32(1), np.int32(-1))
    return int(np.cumsum(steps).max(initial=0))


def count(text: memoryview, byte: bytes) -> int:
    """Return how often a byte occurs in a text, several times as fast as bytes.count."""
    whole = np.frombuffer(text, np.uint8)
    return sum(
        int(np.count_nonzero(whole[start : start + _BLOCK] == ord(byte))) for start in range(0, whole.size, _BLOCK)
    )


def not_json(exc: orjson.JSONDecodeError, place: str) -> InvalidRequestError:
    """Return the error for a text that is not JSON."""
    if _NON_FINITE.match(exc.doc, exc.pos):
        return InvalidRequestError(
            f"the body is not JSON: {place} has NaN or Infinity, which JSON lacks;"
            ' write "NaN", "Infinity" or "-Infinity" with quotes, or send the tensor as base64 or .npy'
        )
    return InvalidRequestError(f"the body is not JSON: {exc.msg}, {place}")


def _check(what: str, found: int, limit: int) -> None:
    if found > limit:
        raise RequestTooLargeError(
            f"the JSON body has too many {what}: found {found:,}, expected at most {limit:,}; {BINARY}",
            found=found,
            limit=limit,
        )
