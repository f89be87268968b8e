"""JSON bytes -> Python values, with the nesting measured before anything is built."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import orjson

from app.codec.json_cost import parsed_bytes
from app.errors import InvalidRequestError
from app.memory import charge

_NOT_STRUCTURE: Final = bytes(byte for byte in range(256) if byte not in b'"[]{}')
_NON_FINITE: Final = re.compile(r"-?(nan|inf(inity)?)\b", re.IGNORECASE)
# Structural characters that are looked at together: what lies in between takes no memory.
_BLOCK: Final = 1 << 16


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
    charge(parsed_bytes(body))
    try:
        with without_collector():
            return orjson.loads(body)
    except orjson.JSONDecodeError as exc:
        if _NON_FINITE.match(exc.doc, exc.pos):
            raise InvalidRequestError(
                f"the body is not JSON: line {exc.lineno} column {exc.colno} holds NaN or Infinity, which JSON cannot"
                ' spell; write "NaN", "Infinity" or "-Infinity" with quotes, or send the tensor as base64 or .npy'
            ) from None
        raise InvalidRequestError(f"the body is not JSON: {exc}") from None


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


def nesting(body: bytes | bytearray) -> int:
    """The deepest nesting of lists and objects; brackets inside strings do not count.

    Takes time in proportion to the body, whatever is in it: no step goes back. What it says of a text that is not JSON
    means nothing, and nothing depends on it: such a text is refused where it stops being JSON.
    """
    if b"\\" in body:
        # In a JSON string backslashes come in pairs or before what they escape: without the pairs, and then without
        # the quotes that are escaped, the quotes that are left begin and end strings.
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    structure = np.frombuffer(body.translate(None, _NOT_STRUCTURE), np.uint8)
    deepest, depth, is_inside = 0, 0, 0
    for start in range(0, structure.size, _BLOCK):
        block = structure[start : start + _BLOCK]
        is_quote = block == ord('"')
        # Eight bits are enough: only odd or even counts.
        inside = (np.cumsum(is_quote, dtype=np.uint8) + is_inside) & 1
        # "[" is 0x5B and "{" 0x7B, the closing ones are two higher each.
        steps = np.where((block & 0x5F) == 0x5B, np.int32(1), np.int32(-1))
        steps[is_quote | (inside == 1)] = 0
        depths = np.cumsum(steps, dtype=np.int64) + depth
        deepest, depth, is_inside = max(deepest, int(depths.max())), int(depths[-1]), int(inside[-1])
    return deepest
