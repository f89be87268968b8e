"""What a JSON text may become in memory, and how deep it is nested, measured in its bytes before it is parsed.

Every value follows a comma, an opening bracket or a colon; those are counted, the ones inside strings as well: an
estimate may be too high, never too low. The figures are CPython's on 64 bits, orjson's and numpy's way of building
included: what is parsed and the array that is made of it exist side by side.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

# A place in a list that grew, a number, the same in an array of eight bytes and in one of the model's dtype.
_VALUE: Final = 16 + 32 + 8 + 8
# The list itself, its collector's header, its first places, numpy's note of it.
_LIST: Final = 112
_OBJECT: Final = 200
_KEY: Final = 64
_STRING: Final = 56

# Strings that are taken for keys without a look.
_FEW: Final = 1000
# Shorter texts are counted by bytes.count, which needs no arrays.
_SHORT: Final = 1 << 13
# Bytes that are looked at together: what lies in between takes a few times as much memory.
_BLOCK: Final = 1 << 17
# Those that are only counted, near to the processor.
_NEAR: Final = 1 << 18
# Rarer ones than that are searched for faster than they are counted.
_APART: Final = 1 << 11


class Measure(NamedTuple):
    """What parsing a JSON text means.

    depth: the deepest nesting of lists and objects.
    parsed_bytes: an upper bound of what parsing the text, and making a tensor of it, takes beside the text.
    """

    depth: int
    parsed_bytes: int


def measure(body: bytes | bytearray, enough: int = 0) -> Measure:
    """The measure of a text, whatever is in it, in time proportional to its length: no step goes back.

    Of a text that is not JSON the depth means nothing, and nothing depends on it: such a text is refused where it stops
    being JSON.

    Args:
        enough: a depth that is no deeper need not be exact; it may be too high, but is no higher than this.
    """
    if len(body) <= _SHORT:
        lists, objects = body.count(b"["), body.count(b"{")
        if lists + objects <= enough:
            return Measure(lists + objects, _bytes(body, body.count(b","), body.count(b'"'), lists, objects))
    text = body
    if b"\\" in body:
        # In a JSON string backslashes come in pairs or before what they escape: without the pairs, and then without
        # the quotes that are escaped, the quotes that are left begin and end strings.
        text = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    whole = np.frombuffer(text, np.uint8)
    commas = quotes = lists = objects = deepest = depth = is_inside = 0
    for start in range(0, whole.size, _BLOCK):
        block = whole[start : start + _BLOCK]
        commas += int(np.count_nonzero(block == ord(",")))
        # "[" is 0x5B and "{" 0x7B, the closing ones are two higher each.
        folded = block | 0x20
        is_structure = folded == ord("{")
        is_structure |= folded == ord("}")
        is_structure |= block == ord('"')
        structure = block[is_structure]
        if not structure.size:
            continue
        is_quote = structure == ord('"')
        # Eight bits are enough: only odd or even counts.
        inside = (np.cumsum(is_quote, dtype=np.uint8) + is_inside) & 1
        steps = np.where((structure & 0x5F) == ord("["), np.int32(1), np.int32(-1))
        steps[is_quote | (inside == 1)] = 0
        depths = np.cumsum(steps, dtype=np.int64) + depth
        deepest, depth, is_inside = max(deepest, int(depths.max())), int(depths[-1]), int(inside[-1])
        quotes += int(np.count_nonzero(is_quote))
        lists += int(np.count_nonzero(structure == ord("[")))
        objects += int(np.count_nonzero(structure == ord("{")))
    return Measure(deepest, _bytes(body, commas, quotes, lists, objects))


def lists_bytes(commas: int, lists: int) -> int:
    """What lists that hold nothing but numbers and lists add to the measure of a text they are part of."""
    return commas * _VALUE + lists * _LIST


def count(text: memoryview, byte: bytes) -> int:
    """How often it is in a text: several times as fast as bytes.count."""
    whole = np.frombuffer(text, np.uint8)
    room = np.empty(min(whole.size, _NEAR), np.bool_)
    found = 0
    for start in range(0, whole.size, _NEAR):
        block = whole[start : start + _NEAR]
        found += int(np.count_nonzero(np.equal(block, ord(byte), out=room[: block.size])))
    return found


def count_rare(body: bytes | bytearray, byte: bytes, start: int, end: int) -> int:
    """The same between two places, of one that there are few of, most likely: found one by one, they take less."""
    found = 0
    at = body.find(byte, start, end)
    while at >= 0:
        found += 1
        if found * _APART > end - start:
            return found + count(memoryview(body)[at + 1 : end], byte)
        at = body.find(byte, at + 1, end)
    return found


def _bytes(body: bytes | bytearray, commas: int, quotes: int, lists: int, objects: int) -> int:
    strings = quotes // 2
    # Each key is a string before a colon; colons are counted where that may make a difference.
    keys = strings if strings <= _FEW else min(strings, body.count(b":"))
    texts = len(body) if strings else 0
    return texts + (commas + 1) * _VALUE + lists * _LIST + objects * _OBJECT + keys * _KEY + strings * _STRING
