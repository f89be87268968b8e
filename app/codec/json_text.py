"""JSON bytes -> Python values, with the nesting measured before anything is built."""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np
import orjson

from app.errors import InvalidRequestError

_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NOT_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")
_NON_FINITE: Final = re.compile(r"-?(nan|inf(inity)?)\b", re.IGNORECASE)


def parse_json(body: bytes | bytearray, *, max_depth: int) -> Any:
    """The value of a JSON text.

    Raises:
        InvalidRequestError: not JSON, NaN or Infinity (which JSON has not), or nested deeper than max_depth.
    """
    depth = nesting(body)
    if depth > max_depth:
        raise InvalidRequestError(
            f"the JSON body is nested too deep: found {depth} levels, expected at most {max_depth}",
            found=depth,
            limit=max_depth,
        )
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as exc:
        if _NON_FINITE.match(exc.doc, exc.pos):
            raise InvalidRequestError(
                f"the body is not JSON: line {exc.lineno} column {exc.colno} holds NaN or Infinity, which JSON cannot"
                ' spell; write "NaN", "Infinity" or "-Infinity" with quotes, or send the tensor as base64 or .npy'
            ) from None
        raise InvalidRequestError(f"the body is not JSON: {exc}") from None


def nesting(body: bytes | bytearray) -> int:
    """The deepest nesting of lists and objects; brackets inside strings do not count."""
    text = _STRING.sub(b"", body) if b'"' in body else bytes(body)
    brackets = np.frombuffer(text.translate(None, _NOT_BRACKETS), np.uint8)
    if not brackets.size:
        return 0
    # "[" is 0x5B and "{" 0x7B, the closing ones are two higher each.
    steps = np.where((brackets & 0x5F) == 0x5B, 1, -1)
    return max(0, int(np.cumsum(steps).max()))
