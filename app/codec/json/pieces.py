"""Large JSON texts -> Python values, a piece at a time.

The parser does not let other threads run while it works, and neither does the release of what it made: a second for
some ten million numbers. So lists of lists of numbers, which is what a large text is made of, are cut at commas into
pieces that are parsed one by one. What is around them (objects, and lists that hold objects) is read here, value by
value, and bounded in number.
"""

from __future__ import annotations

import re
from typing import Any, Final, NoReturn

import numpy as np
import orjson

from app.errors import InvalidRequestError, RequestTooLargeError
from app.memory.allowance import check

PIECE: Final = 1 << 18
# How far is looked at first: most lists are short.
_FIRST: Final = 1 << 12
# Values that are released at once.
_RELEASED: Final = 1 << 17
# The most items of a list that holds objects, and of an object: no sensible request has more.
_MAX_ITEMS: Final = 10_000

_NON_FINITE: Final = re.compile(r"-?(nan|inf(inity)?)\b", re.IGNORECASE)
_BLANK: Final = b" \t\n\r"
# Where the end of a piece is looked for first.
_NEAR: Final = 64
_BLANKS: Final = re.compile(rb"[ \t\n\r]*+")
_SCALAR: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[-+.0-9A-Za-z]++', re.DOTALL)


def loads_in_pieces(body: bytes | bytearray) -> Any:
    """The value of a JSON text that is nested as deep as this process can call, at most.

    Raises:
        InvalidRequestError: not JSON.
        RequestTooLargeError: objects with very many keys, or lists with very many items beside objects.
        DeadlineExceededError: nobody waits for it any more.
    """
    reader = _Reader(body)
    try:
        return reader.document()
    except BaseException:
        for whole in reader.lists:
            dismantle(whole)
        raise


def non_finite(exc: orjson.JSONDecodeError, place: str) -> str | None:
    """What to say of a text that holds NaN or Infinity; None where it does not."""
    if not _NON_FINITE.match(exc.doc, exc.pos):
        return None
    return (
        f"the body is not JSON: {place} holds NaN or Infinity, which JSON cannot"
        ' spell; write "NaN", "Infinity" or "-Infinity" with quotes, or send the tensor as base64 or .npy'
    )


def dismantle(value: object, *, is_even: bool = False) -> None:
    """Empty what was parsed, a piece at a time, when it is no longer needed.

    is_even: lists are nested evenly, as those of a tensor are, which takes less looking.
    """
    if isinstance(value, dict):
        for item in value.values():
            dismantle(item, is_even=is_even)
        value.clear()
    elif isinstance(value, list) and is_even:
        size = even_size(value[0]) if value else 1
        if size > _RELEASED:
            for item in value:
                dismantle(item, is_even=True)
        step = max(1, _RELEASED // size)
        while value:
            del value[-step:]
    elif isinstance(value, list):
        while value:
            piece = value[-_RELEASED:]
            del value[-_RELEASED:]
            for item in piece:
                if type(item) is list or type(item) is dict:
                    dismantle(item)


def even_size(value: object) -> int:
    """How many values nested lists hold, if all are as long as the first ones."""
    size = 1
    while isinstance(value, list) and value:
        size *= len(value)
        value = value[0]
    return size


class _Reader:
    def __init__(self, body: bytes | bytearray) -> None:
        self._body = body
        self._marks = body
        if b"\\" in body:  # escaped quotes end no strings; of the same length, so that places agree
            self._marks = body.replace(b"\\\\", b"__").replace(b'\\"', b"__")
        self._items = 0
        # What was made of several pieces, in case the text turns out to be none.
        self.lists: list[list[Any]] = []

    def document(self) -> Any:
        value, at = self._value(0)
        at = self._skip(at)
        if at < len(self._body):
            self._fail(at, "unexpected characters behind its end")
        return value

    def _value(self, at: int) -> tuple[Any, int]:
        at = self._skip(at)
        first = self._body[at : at + 1]
        if first == b"{":
            return self._object(at)
        if first == b"[":
            return self._list(at)
        token = _SCALAR.match(self._body, at)
        if token is None:
            self._fail(at, "expected a value")
        return self._loads(token[0], at), token.end()

    def _object(self, at: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        at = self._skip(at + 1)
        if self._body[at : at + 1] == b"}":
            return found, at + 1
        while True:
            token = _SCALAR.match(self._body, at)
            key = self._loads(token[0], at) if token is not None else None
            if token is None or not isinstance(key, str):
                self._fail(at, "expected a key")
            at = self._skip(token.end())
            if self._body[at : at + 1] != b":":
                self._fail(at, "expected a colon")
            self._count()
            found[key], at = self._value(at + 1)
            at = self._skip(at)
            end = self._body[at : at + 1]
            at = self._skip(at + 1)
            if end == b"}":
                return found, at
            if end != b",":
                self._fail(at, "expected a comma or the end of an object")

    def _list(self, at: int) -> tuple[list[Any], int]:
        spans = self._spans(at)
        if spans is None:
            return self._mixed_list(at)
        whole: list[Any] = []
        depth = 0
        for start, end, depth_after in spans:
            check()
            if (depth and self._first(start, end) in b"],") or (depth_after and self._last(start, end) in b"[,"):
                self._fail(start, "a comma without a value")
            # One copy: a piece is parsed between the brackets that are open around it.
            text = b"".join((b"[" * depth, memoryview(self._body)[start:end], b"]" * depth_after))
            piece = self._loads(text, start)
            if depth == 0:
                whole = piece
                self.lists.append(whole)
            else:
                _join(whole, piece, depth)
            depth = depth_after
        return whole, spans[-1][1]

    def _mixed_list(self, at: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        at += 1
        while True:
            self._count()
            item, at = self._value(at)
            found.append(item)
            at = self._skip(at)
            end = self._body[at : at + 1]
            at += 1
            if end == b"]":
                return found, at
            if end != b",":
                self._fail(at, "expected a comma or the end of a list")

    def _spans(self, at: int) -> list[tuple[int, int, int]] | None:
        """Where a list is cut: start, end and open brackets of each piece, without the commas in between.

        None when it holds an object, or does not end.
        """
        spans: list[tuple[int, int, int]] = []
        size, depth = len(self._marks), 0
        limit = self._marks.find(b"{", at)
        limit = size if limit < 0 else limit
        reach = _FIRST
        while at < limit:
            block = np.frombuffer(self._marks, np.uint8, min(reach, limit - at), at)
            # 0x5B and 0x5D, and with them 0x59 and 0x5F, "Y" and "_": outside of strings no JSON has those.
            is_bracket, outside = (block & 0xF9) == 0x59, None
            if self._marks.find(b'"', at, at + len(block)) >= 0:
                outside = np.cumsum(block == ord('"'), dtype=np.uint8) & 1 == 0
                is_bracket &= outside
            brackets = np.flatnonzero(is_bracket)
            depths = np.cumsum(ord("\\") - block[brackets].astype(np.int64)) + depth  # it lies between the two
            if depths.size and int(depths.min()) <= 0:
                spans.append((at, at + int(brackets[np.argmax(depths <= 0)]) + 1, 0))
                return spans
            last = self._marks.rfind(b",", at, at + len(block)) - at
            if outside is not None:
                commas = np.flatnonzero((block == ord(",")) & outside)
                last = int(commas[-1]) if commas.size else -1
            if last < 0:
                if at + len(block) >= limit:
                    return None
                reach *= 4  # a long string, or blanks
                continue
            before = int(np.searchsorted(brackets, last))
            depth = int(depths[before - 1]) if before else depth
            spans.append((at, at + last, depth))
            at, reach = at + last + 1, PIECE
        return None

    def _first(self, start: int, end: int) -> bytes:
        """The first character that is no blank; nothing where there is none."""
        at = self._skip(start)
        return bytes(self._body[at : min(at + 1, end)])

    def _last(self, start: int, end: int) -> bytes:
        """The last character that is no blank; nothing where there is none."""
        near = self._body[max(start, end - _NEAR) : end].rstrip(_BLANK)
        return bytes((near or self._body[start:end].rstrip(_BLANK))[-1:])

    def _skip(self, at: int) -> int:
        found = _BLANKS.match(self._body, at)
        return found.end() if found is not None else at

    def _count(self) -> None:
        self._items += 1
        if self._items > _MAX_ITEMS:
            raise RequestTooLargeError(
                f"the JSON body has too many keys, or too many items beside objects, expected at most {_MAX_ITEMS}",
                limit=_MAX_ITEMS,
            )

    def _loads(self, text: bytes | bytearray, at: int) -> Any:
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError as exc:
            place = f"near byte {min(at + exc.pos, len(self._body))}"
            raise InvalidRequestError(non_finite(exc, place) or f"the body is not JSON: {exc.msg}, {place}") from None

    def _fail(self, at: int, reason: str) -> NoReturn:
        raise InvalidRequestError(f"the body is not JSON: {reason}, near byte {min(at, len(self._body))}")


def _join(whole: list[Any], piece: list[Any], depth: int) -> None:
    """Continue the innermost of the lists that end a list with what begins a piece, nested as deep."""
    for _ in range(depth - 1):
        deeper, first = whole[-1], piece[0]
        whole.extend(piece[1:])
        whole, piece = deeper, first
    whole.extend(piece)
