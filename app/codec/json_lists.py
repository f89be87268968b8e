"""Limits of a JSON text, and its long lists of numbers and long strings, which are cut out and parsed in pieces.

Parsing holds the interpreter lock, a second for some ten million numbers, and a Python number takes four times the
memory of a tensor's value. So a list that looks like a tensor (evenly nested numbers where a request has its inputs)
is parsed 256 KiB at a time, each piece directly into the array. With the extra ``[fast]`` pysimdjson parses the
pieces, without a Python object for each number; a list of up to 4 MiB at once, which takes half of the time.

Parsing, and freeing the result, holds the interpreter lock. So bytes, values, lists, strings and escapes are limited;
long lists of numbers and base64 are exempt. Counts include the contents of strings, so they may be too
high, but never too low.
"""

from __future__ import annotations

import functools
import math
import re
import secrets
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, Final

import numpy as np
import orjson
from numpy.typing import NDArray

from app.errors import InvalidRequestError, RequestTooLargeError
from app.memory.reservation import charge, charged, check

# Shorter texts cannot exceed a limit.
COUNTED_BYTES: Final = 1 << 18
MAX_BYTES: Final = 8 << 20
# numpy's limit of dimensions; requests wrap tensors in a few objects.
MAX_DEPTH: Final = 32
MAX_VALUES: Final = 1 << 19
MAX_LISTS: Final = 1 << 17
MAX_STRINGS: Final = 1 << 18
MAX_ESCAPES: Final = 1 << 18
BINARY: Final = "send tensors as .npy to /infer or in binary to /v2, pictures as files, and texts in several requests"

# Bytes in CPython on 64 bits: a value with its references from a list and two arrays; a list; an object; a string, most
# likely a key.
_VALUE_BYTES: Final = 16 + 32 + 8 + 8
_LIST: Final = 112
_OBJECT: Final = 200
_STRING: Final = 56 + 64
# Block size that fits the processor's cache.
_BLOCK: Final = 1 << 18
_NON_FINITE: Final = re.compile(r"-?(nan|inf(inity)?)\b", re.IGNORECASE)
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
# Shorter lists are not worth the search.
_LEAST: Final = 1 << 12
_LEAST_STRING: Final = 1 << 16
_PIECE: Final = 1 << 18
# Text that pysimdjson parses at once: it holds the interpreter lock for some 4 ms.
_WHOLE: Final = 1 << 22
# Longer numbers are refused.
_MAX_NUMBER: Final = 1 << 12
# A text with more strings does not consist of tensors.
_MAX_QUOTES: Final = 10_000
# Bytes of a value in the parsed array and in the model's dtype, with brackets and commas of the text.
_VALUE: Final = 24
# Limit of blanks and brackets before the first number of a list, and of the text from the last one to the next string.
_MAX_EDGE: Final = 1 << 12
_BEGIN: Final = re.compile(rb"[ \t\n\r]*+:[ \t\n\r]*+((?:\[[ \t\n\r]*+){1,32}+)(?=[^\]])")
_BEHIND: Final = b" \t\n\r]},:[{"
_CLOSING: Final = re.compile(rb"[ \t\n\r]*+\]")
_BLANKS: Final = b" \t\n\r"
# Text between the last value of one list and the first one of the next.
_BREAK: Final = re.compile(rb"\][][, \t\n\r]*+")
# Keys of an input that never stand for a tensor.
_NOT_LISTS: Final = frozenset({"shape", "dtype", "b64", "image"})
_BASE64: Final = frozenset({"b64", "image"})
# Placeholder for a list or a string while the text around it is parsed; random, so that clients cannot forge it.
_MARK: Final = secrets.token_hex(16)
# Kinds of numbers that pysimdjson returns for a dtype's kind, and their dtypes.
_KINDS: Final = {"f": "d", "i": "i", "u": "i"}
_WIDE: Final = {"d": np.float64, "i": np.int64}
# Converts values to an array; the flag says whether they are the first ones of the list.
Convert = Callable[[Any, bool], NDArray[Any]]


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
    charge(texts + values * _VALUE_BYTES + lists * _LIST + objects * _OBJECT + strings * _STRING)


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


class LongList:
    """Unparsed text of a list that most likely consists of evenly nested numbers."""

    def __init__(self, body: bytes | bytearray, start: int, end: int, depth: int) -> None:
        self._depth = depth
        self._text = memoryview(body)[start:end]
        self._start = start
        self._commas = count(self._text, b",")
        charge(_VALUE * (self._commas + 1))

    @property
    def flat_size(self) -> int | None:
        """Return the number of values of a flat list, or None for a nested one."""
        return self._commas + 1 if self._depth == 1 else None

    def read(self, dtype: np.dtype[Any], convert: Convert) -> NDArray[Any]:
        """Return the tensor.

        Raises:
            ValueError: the lists are not evenly nested.
            InvalidRequestError: the text is not JSON.
            RequestTooLargeError: a number is very long.
            DeadlineExceededError: the request's time is up.
        """
        with charged(_VALUE * (self._commas + 1)):
            whole = self._read_whole(dtype, convert)
        if whole is not None:
            return whole
        values, breaks, at, before = np.empty(self._commas + 1, dtype), _Breaks(), 0, b""
        parser = _simdjson() and _simdjson()()  # one per list, since its results live in its memory
        for start, piece in self._pieces():
            check()
            opened = piece.lstrip(b"[" + _BLANKS)
            core = opened.rstrip(b"]" + _BLANKS)
            if not core and b"[" in piece:
                raise ValueError("a list is empty")
            if not core:  # otherwise a value would stay uninitialised
                raise InvalidRequestError(f"the body is not JSON: a comma without a value, near byte {start}")
            if start > self._start:
                breaks.add(before + b"," + piece[: len(piece) - len(opened)], at)
            before = opened[len(core) :]
            breaks.add_all(core, at)
            text = b"[%b]" % core.replace(b"[", b" ").replace(b"]", b" ")
            numbers = _read_fast(parser, text, dtype)
            found = convert(self._values(text, start) if numbers is None else numbers, at == 0)
            values[at : at + len(found)] = found
            at += len(found)
        return values.reshape(breaks.shape(self._depth, len(values)))

    def _read_whole(self, dtype: np.dtype[Any], convert: Convert) -> NDArray[Any] | None:
        """Return the tensor, parsed at once; None if it is too long, or has a fault that reading in pieces explains."""
        kind = _KINDS.get(dtype.kind)
        if kind is None or _simdjson() is None or len(self._text) > _WHOLE:
            return None
        try:
            parsed = _simdjson()().parse(self._text)
            level, shape, lists = [parsed], list[int](), 0
            for _ in range(self._depth):
                sizes = {len(each) for each in level}
                shape.append(sizes.pop())
                lists += len(level)
                level = [item for each in level for item in each] if len(shape) < self._depth else []
                if sizes:
                    return None
            # A list among the numbers would be one more.
            if lists != count(self._text, b"[") or math.prod(shape) != self._commas + 1:
                return None
            flat = np.frombuffer(parsed.as_buffer(of_type=kind), _WIDE[kind])
        except (ValueError, RuntimeError, TypeError):
            return None
        return convert(flat, True).reshape(shape)

    def _pieces(self) -> Iterator[tuple[int, bytes]]:
        """Yield pieces of the text that end before a comma, each with its offset in the body."""
        at = 0
        while at < len(self._text):
            piece = bytes(self._text[at : at + _PIECE])
            if at + len(piece) < len(self._text):
                last = piece.rfind(b",")
                if last < len(piece) - _MAX_NUMBER or last <= 0:
                    raise RequestTooLargeError(
                        f"the JSON body has a number or blanks of {_MAX_NUMBER:,} bytes or more; {BINARY}",
                        limit=_MAX_NUMBER,
                    )
                piece = piece[:last]
            yield self._start + at, piece
            at += len(piece) + 1
        if bytes(self._text[at - 1 : at]) == b",":
            raise InvalidRequestError("the body is not JSON: a list ends with a comma")

    def _values(self, text: bytes, start: int) -> Any:
        """Return the values of a flat list that is not empty."""
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError as exc:
            raise not_json(exc, f"near byte {start + exc.pos - 1}") from None


def cut_long(body: bytes | bytearray) -> tuple[bytes, list[LongList | memoryview]] | None:
    """Cut long lists, and long strings without escapes, out of a text; return None if there are none.

    Returns:
        The text with a placeholder for each, nested as deeply as a list's first value, and what was cut out.
    """
    if len(body) < _LEAST:
        return None
    whole = memoryview(body)
    pieces: list[bytes | memoryview] = []
    found: list[LongList | memoryview] = []
    at = 0
    for start, end, depth in _spans(body):
        mark = f'"{_MARK}{len(found)}"'.encode()
        pieces += [whole[at:start], b"[" * depth, mark if depth else mark[1:-1], b"]" * depth]
        found.append(LongList(body, start, end, depth) if depth else whole[start:end])
        at = end
    return (b"".join([*pieces, whole[at:]]), found) if found else None


def put_back(document: Any, found: list[LongList | memoryview]) -> bool:
    """Replace the placeholders by what was cut out; return whether each list was where a request has a tensor."""
    left = dict(enumerate(found))
    document = _with_strings(document, left, "")
    if not isinstance(document, dict) or "inputs" not in document:
        return not left
    inputs = document["inputs"]
    document["inputs"] = _placed(inputs, left)
    tensors: list[Any] = inputs if isinstance(inputs, list) else []
    if isinstance(inputs, dict):
        inputs |= {key: _placed(value, left) for key, value in inputs.items() if key not in _NOT_LISTS}
        tensors = [*inputs.values()]
    for each in tensors:
        if isinstance(each, dict) and "data" in each:
            each["data"] = _placed(each["data"], left)
    return not left


def _with_strings(value: Any, left: dict[int, Any], key: str) -> Any:
    """Put long strings back, as bytes where base64 is expected."""
    if isinstance(value, dict):
        value |= {name: _with_strings(item, left, name) for name, item in value.items()}
    elif isinstance(value, list):
        value[:] = [_with_strings(item, left, "") for item in value]
    elif isinstance(value, str) and value.startswith(_MARK):
        number = int(value.removeprefix(_MARK))
        if isinstance(left[number], memoryview):
            text = left.pop(number)
            return text if key in _BASE64 else str(text, "ascii")
    return value


def _placed(value: Any, left: dict[int, Any]) -> Any:
    """Return the list of a placeholder, however deep it is nested; any other value unchanged."""
    whole = value
    while isinstance(value, list) and len(value) == 1:
        (value,) = value
    if value is whole or not isinstance(value, str) or not value.startswith(_MARK):
        return whole
    return left.pop(int(value.removeprefix(_MARK)))


def _spans(body: bytes | bytearray) -> Iterator[tuple[int, int, int]]:
    """Yield where long lists and strings start and end, and the depth of a list; 0 for a string."""
    text = body
    if b"\\" in body:  # escaped quotes do not end strings; the replacement has the same length, so offsets stay
        text = body.replace(b"\\\\", b"__").replace(b'\\"', b"__")
    quotes: list[int] = []
    at = text.find(b'"')
    while at >= 0:
        if len(quotes) == _MAX_QUOTES:
            return
        quotes.append(at)
        at = text.find(b'"', at + 1)
    for number, (start, end) in enumerate(pairwise([*quotes, len(text)])):
        if number % 2 == 0 and end - start > _LEAST_STRING and _is_plain(memoryview(body)[start + 1 : end]):
            yield start + 1, end, 0
        elif number % 2 and end - start >= _LEAST and (span := _span(text, start + 1, end)) is not None:
            yield span


def _is_plain(text: memoryview) -> bool:
    """Return whether a text is printable ASCII without backslashes, so that the string equals its JSON text."""
    whole = np.frombuffer(text, np.uint8)
    for start in range(0, whole.size, _PIECE):
        block = whole[start : start + _PIECE]
        if ((block < 0x20) | (block > 0x7E) | (block == ord("\\"))).any():
            return False
    return True


def _span(text: bytes | bytearray, start: int, end: int) -> tuple[int, int, int] | None:
    """Return the list after a key and before the next string."""
    begin = _BEGIN.match(text, start, min(end, start + _MAX_EDGE))
    if begin is None:
        return None
    depth = begin[1].count(b"[")
    last = bytes(text[max(begin.end(), end - _MAX_EDGE) : end])
    at = len(last.rstrip(_BEHIND))
    for _ in range(depth):
        closing = _CLOSING.match(last, at)
        if closing is None:
            return None
        at = closing.end()
    return begin.start(1), end - len(last) + at, depth


class _Breaks:
    """Boundaries between lists, which give the shape: all lists of one depth must have the same length."""

    def __init__(self) -> None:
        self._places: list[Any] = []
        self._counts: list[Any] = []
        self._known: dict[bytes, int] = {}

    def add(self, between: bytes, place: int) -> None:
        """Add the text between two values; place: number of values before it.

        Raises:
            ValueError: it does not begin as many lists as it ends.
            InvalidRequestError: it is not JSON.
        """
        self._places.append([place])
        self._counts.append([self._ended(between)])

    def add_all(self, text: bytes, place: int) -> None:
        """Add the text between all values of a piece that begins with a value; place: number of values before it.

        Raises:
            ValueError: it does not begin as many lists as it ends, or mixes lists and numbers, or has an empty list.
            InvalidRequestError: it is not JSON.
        """
        found = np.frombuffer(text, np.uint8)
        ends = np.flatnonzero(found == ord("]"))
        if text[:1] == b"]" or ends.size != np.count_nonzero(found == ord("[")):
            raise ValueError("a list is empty, or beside numbers")
        if not ends.size:
            return
        for each in set(_BREAK.findall(text)):
            self._ended(each)
        # Each boundary has one comma, after the brackets that end its lists.
        commas = np.searchsorted(np.flatnonzero(found == ord(",")), ends)
        places, counts = np.unique(commas, return_counts=True)
        self._places.append(places + place + 1)
        self._counts.append(counts)

    def shape(self, depth: int, values: int) -> tuple[int, ...]:
        """Return the shape of so many values in lists of that depth.

        Raises:
            ValueError: the lists are not evenly nested.
        """
        places, counts = (np.concatenate([*each, []]).astype(np.int64) for each in (self._places, self._counts))
        sizes, length = list[int](), 1
        for level in range(1, depth + 1):
            ends = places[counts >= level]
            longer = int(ends[0]) if ends.size else values
            if longer % length or values % longer or not np.array_equal(ends, np.arange(longer, values, longer)):
                raise ValueError("the lists are not evenly nested")
            sizes.append(longer // length)
            length = longer
        if length != values:
            raise ValueError("the lists are not evenly nested")
        return tuple(reversed(sizes))

    def _ended(self, between: bytes) -> int:
        """Return how many lists end, and begin again, between two values."""
        if between not in self._known:
            compact = between.translate(None, _BLANKS)
            count, begun = compact.count(b"]"), compact.count(b"[")
            if b"[]" in compact:
                raise ValueError("a list is empty")
            if compact != b"]" * count + b"," + b"[" * begun:
                raise InvalidRequestError(f"the body is not JSON: found '{compact[:20].decode()}' between two values")
            if count != begun:
                raise ValueError("the lists are not evenly nested")
            self._known[between] = count
        return self._known[between]


@functools.cache
def _simdjson() -> Any:
    """Return the parser class of the extra, or None without it."""
    try:
        import simdjson
    except ImportError:
        return None
    return simdjson.Parser


def _read_fast(parser: Any, text: bytes, dtype: np.dtype[Any]) -> NDArray[Any] | None:
    """Return the numbers of a flat list, or None without a parser and for values not of the dtype's kind.

    orjson then parses them, so that values and errors are the same with and without the extra.
    """
    kind = _KINDS.get(dtype.kind)
    if kind is None or parser is None:
        return None
    try:
        return np.frombuffer(parser.parse(text).as_buffer(of_type=kind), _WIDE[kind]).copy()
    except (ValueError, RuntimeError, TypeError):
        return None
