"""Large lists of numbers in a JSON text, read without a Python object for each number: by pysimdjson, extra ``[fast]``.

A tensor's text is digits from one end to the other: what is long between two strings is cut out, and what is around it
is small and parsed as any text is. Only what is plainly a tensor is read in this way, evenly nested lists of numbers
where the inputs of a request are. Of everything else nothing is said here, not even that it is wrong: the parser of all
other texts reads it from the start, so that values, limits and errors are the same with and without the extra.
"""

from __future__ import annotations

import functools
import math
import re
import secrets
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from app.codec.json.cost import Measure, count, count_rare, lists_bytes, measure
from app.memory.allowance import charge

# Shorter lists are not worth the search for them; nor is a text with more strings than any tensor has around it.
_LEAST: Final = 1 << 12
_MAX_QUOTES: Final = 200
# What is around the lists.
_MAX_AROUND: Final = 1 << 14
# Blanks, brackets and what begins the next value, behind the last number of a list.
_MAX_END: Final = 1 << 8
_BEGIN: Final = re.compile(rb"[ \t\n\r]*+:[ \t\n\r]*+((?:\[[ \t\n\r]*+){1,32}+)")
_BEHIND: Final = b" \t\n\r]},:[{"
_CLOSING: Final = re.compile(rb"[ \t\n\r]*+\]")
# What no list of numbers stands for.
_NOT_LISTS: Final = frozenset({"shape", "dtype", "b64", "image"})
# Bytes that the parser holds for a value.
_PARSED: Final = 24
# Stands in for a list while the text around it is parsed. It is random, so that no client can write it.
_MARK: Final = secrets.token_hex(16)


class Numbers:
    """Evenly nested lists of a text, most likely all numbers, which are still to be looked at.

    Args:
        shape: how many items the lists have, from the outermost on; none is empty.
    """

    def __init__(self, parsed: Any, shape: tuple[int, ...]) -> None:
        self._parsed = parsed
        self.shape = shape

    def read(self, dtype: np.dtype[Any]) -> NDArray[Any] | None:
        """The values, unless there are some of another kind among them, or out of the range of dtype.

        Args:
            dtype: float, or integer; there is none for other ones.
        """
        kind = {"f": "d", "i": "i", "u": "i"}.get(dtype.kind)
        if kind is None:
            return None
        try:
            flat = np.frombuffer(self._parsed.as_buffer(of_type=kind), np.float64 if kind == "d" else np.int64)
            if kind == "i" and not _is_within(flat, dtype):
                return None
            with np.errstate(over="raise"):
                return flat.astype(dtype, copy=False).reshape(self.shape)
        except (ValueError, TypeError, FloatingPointError):
            return None

    def plain(self) -> Any:
        """The lists, as the other parser makes them."""
        charge(_PARSED * math.prod(self.shape))
        return self._parsed.as_list()


class _Text:
    """That of a list, which ends with as many brackets as it begins with: depth."""

    def __init__(self, body: bytes | bytearray, start: int, end: int, depth: int) -> None:
        self.text = memoryview(body)[start:end]
        self.depth = depth
        self.lists = count_rare(body, b"[", start, end)
        self.commas = count(self.text, b",")


@dataclass(frozen=True, slots=True)
class Cut:
    """A text in which long lists were found.

    Args:
        around: the text, with a mark in place of each of them.
    """

    around: bytes
    lists: tuple[_Text, ...]

    def measure(self, enough: int) -> Measure:
        """That of the whole text, if the lists are evenly nested."""
        found = measure(self.around, enough)
        return Measure(
            found.depth, found.parsed_bytes + sum(lists_bytes(each.commas, each.lists) for each in self.lists)
        )

    def value(self, around: Any) -> Any:
        """What the whole text says; None where the other parser has to find out.

        Args:
            around: what ``self.around`` says.
        """
        left: dict[int, Numbers] = {}
        for number, text in enumerate(self.lists):
            numbers = _read(text)
            if numbers is None:
                return None
            left[number] = numbers
        if not isinstance(around, dict) or "inputs" not in around:
            return None
        inputs = around["inputs"]
        around["inputs"] = _placed(inputs, left)
        tensors: list[Any] = inputs if isinstance(inputs, list) else []
        if isinstance(inputs, dict):
            inputs |= {key: _placed(value, left) for key, value in inputs.items() if key not in _NOT_LISTS}
            tensors = [*inputs.values()]
        for each in tensors:
            if isinstance(each, dict) and "data" in each:
                each["data"] = _placed(each["data"], left)
        return None if left else around


@functools.cache
def _parser() -> Any:
    """What makes parsers; None without the extra."""
    try:
        import simdjson
    except ImportError:
        return None
    return simdjson.Parser


def cut_lists(body: bytes | bytearray) -> Cut | None:
    """A text with its long lists apart; None where there are none, or nothing to read them with.

    In time proportional to its length.
    """
    if len(body) < _LEAST or _parser() is None:
        return None
    spans = _spans(body)
    if not spans:
        return None
    whole = memoryview(body)
    pieces: list[bytes | memoryview] = []
    at = 0
    for number, (start, end, depth) in enumerate(spans):
        pieces += [whole[at:start], b"[" * depth, f'"{_MARK}{number}"'.encode(), b"]" * depth]
        at = end
    around = b"".join([*pieces, whole[at:]])
    # Behind a backslash a quote is none, and what was taken for a list may be a string.
    if len(around) > _MAX_AROUND or b"\\" in around:
        return None
    return Cut(around, tuple(_Text(body, start, end, depth) for start, end, depth in spans))


def _spans(body: bytes | bytearray) -> list[tuple[int, int, int]] | None:
    """Where long lists start and end, and how many brackets they begin with."""
    quotes: list[int] = []
    at = body.find(b'"')
    while at >= 0:
        if len(quotes) == _MAX_QUOTES:
            return None
        quotes.append(at)
        at = body.find(b'"', at + 1)
    gaps = zip(quotes[1::2], [*quotes[2::2], len(body)], strict=False)
    return [span for start, end in gaps if end - start >= _LEAST and (span := _span(body, start + 1, end)) is not None]


def _span(body: bytes | bytearray, start: int, end: int) -> tuple[int, int, int] | None:
    """The list behind a key and before the next string."""
    begin = _BEGIN.match(body, start, end)
    if begin is None:
        return None
    depth = begin[1].count(b"[")
    last = bytes(body[end - _MAX_END : end])
    at = len(last.rstrip(_BEHIND))
    for _ in range(depth):
        closing = _CLOSING.match(last, at)
        if closing is None:
            return None
        at = closing.end()
    return begin.start(1), end - len(last) + at, depth


def _read(text: _Text) -> Numbers | None:
    """Lists that are as deep as that everywhere, and each as long as its neighbours."""
    try:
        parsed = _parser()().parse(text.text)
    except (ValueError, RuntimeError):
        return None
    level, shape, lists = [parsed], [], 0
    for left in reversed(range(text.depth)):
        sizes = set(map(len, level))
        shape.append(sizes.pop())
        lists += len(level)
        if sizes:
            return None
        if left:
            level = [item for each in level for item in each]
            if set(map(type, level)) != {type(parsed)}:
                return None
    # One more would be among the numbers.
    return Numbers(parsed, tuple(shape)) if text.lists == lists else None


def _placed(value: Any, left: dict[int, Numbers]) -> Any:
    """A list in place of its mark; what is no mark stays."""
    whole = value
    while isinstance(value, list) and len(value) == 1:
        (value,) = value
    if value is whole or not isinstance(value, str) or not value.startswith(_MARK):
        return whole
    return left.pop(int(value.removeprefix(_MARK)))


def _is_within(flat: NDArray[Any], dtype: np.dtype[Any]) -> bool:
    limits = np.iinfo(dtype)
    return limits.min <= int(flat.min()) and int(flat.max()) <= limits.max
