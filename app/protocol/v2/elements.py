"""Tensors whose elements are bytes of any length: texts, and pictures."""

from __future__ import annotations

from typing import Final

from app.memory.allowance import charge, check
from app.protocol.v2.errors import RefusedError

_LENGTH: Final = 4
# What Python takes for a view of an element and its place in a list, in bytes; and how many are made between two looks
# at whether anybody waits.
_VIEW: Final = 192
_STRETCH: Final = 4096


def elements_of(data: memoryview, name: str, count: int) -> list[memoryview]:
    """The elements of a BYTES tensor: each after its length, in four bytes.

    Raises:
        RefusedError: they are not as many, or do not fill the bytes.
        RequestTooLargeError, QueueFullError: there is no memory for so many objects.
        DeadlineExceededError: nobody waits for them any more.
    """
    wrong = f"input '{name}': its {len(data)} bytes are not {count} elements, each after its length in four bytes"
    if _LENGTH * count > len(data):
        raise RefusedError(wrong)
    charge(_VIEW * count)
    found: list[memoryview] = []
    at = 0
    while at < len(data):
        if not len(found) % _STRETCH:
            check()
        end = at + _LENGTH + int.from_bytes(data[at : at + _LENGTH], "little")
        if at + _LENGTH > len(data) or end > len(data) or len(found) == count:
            break
        found.append(data[at + _LENGTH : end])
        at = end
    if at != len(data) or len(found) != count:
        raise RefusedError(wrong)
    return found
