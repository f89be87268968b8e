"""What a JSON text may become in memory, counted in its bytes before it is parsed.

Every value follows a comma, an opening bracket or a colon; those are counted, the ones inside strings as well: an
estimate may be too high, never too low. The figures are CPython's on 64 bits, orjson's and numpy's way of building
included: what is parsed and the array that is made of it exist side by side.
"""

from __future__ import annotations

from typing import Final

# A place in a list that grew, a number, the same in an array of eight bytes and in one of the model's dtype.
_VALUE: Final = 16 + 32 + 8 + 8
# The list itself, its collector's header, its first places, numpy's note of it.
_LIST: Final = 112
_OBJECT: Final = 200
_KEY: Final = 64
_STRING: Final = 56


def parsed_bytes(body: bytes | bytearray) -> int:
    """An upper bound of the bytes that parsing a JSON text, and making a tensor of it, takes beside the text."""
    values = body.count(b",") + 1
    strings = body.count(b'"') // 2
    lists, objects = body.count(b"["), body.count(b"{")
    keys = min(body.count(b":"), strings)
    texts = len(body) if strings else 0
    return texts + values * _VALUE + lists * _LIST + objects * _OBJECT + keys * _KEY + strings * _STRING
