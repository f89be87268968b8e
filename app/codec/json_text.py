"""JSON bytes -> Python values, with the nesting measured before anything is built."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import orjson

from app.codec.json_cost import parsed_bytes
from app.codec.json_pieces import loads_in_pieces, non_finite
from app.errors import InvalidRequestError
from app.memory import charge

_NOT_STRUCTURE: Final = bytes(byte for byte in range(256) if byte not in b'"[]{}')
# Larger texts are parsed in pieces, so that other threads run in between.
AT_ONCE: Final = 1 << 20
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
            return orjson.loads(body) if len(body) <= AT_ONCE else loads_in_pieces(body)
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
