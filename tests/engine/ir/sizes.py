"""Sizes that stand for a number and refuse to tell it, as symbolic ones will."""

from __future__ import annotations

import functools
from typing import Any


@functools.total_ordering
class Size:
    """Number that is not an ``int`` and does not become one."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        raise AssertionError("a size was asked for its number")

    __int__ = __bool__ = __hash__ = __index__  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return bool(self.value == plain(other))

    def __lt__(self, other: object) -> bool:
        return bool(self.value < plain(other))

    def __neg__(self) -> Size:
        return Size(-self.value)

    def __add__(self, other: object) -> Size:
        return Size(self.value + plain(other))

    def __sub__(self, other: object) -> Size:
        return Size(self.value - plain(other))

    def __rsub__(self, other: object) -> Size:
        return Size(plain(other) - self.value)

    def __mul__(self, other: object) -> Size:
        return Size(self.value * plain(other))

    def __floordiv__(self, other: object) -> Size:
        return Size(self.value // plain(other))

    def __rfloordiv__(self, other: object) -> Size:
        return Size(plain(other) // self.value)

    def __mod__(self, other: object) -> Size:
        return Size(self.value % plain(other))

    def __rmod__(self, other: object) -> Size:
        return Size(plain(other) % self.value)

    __radd__, __rmul__ = __add__, __mul__


def plain(value: Any) -> Any:
    return value.value if isinstance(value, Size) else value


def sizes(shape: Any) -> Any:
    """The same sizes, none of them an ``int``; -1 stays, for it is not a size."""
    return tuple(each if each == -1 else Size(each) for each in shape)


def numbers(shape: Any) -> Any:
    return tuple(map(plain, shape))
