"""multipart/form-data (RFC 7578) cut into its parts: views of the body, found by searching for the boundary.

Every byte is looked at a bounded number of times, whatever it is: a part begins where the boundary is found, its head
ends within a bound or the form is refused, and nothing is copied.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_to_bytes

from app.errors import InvalidRequestError, RequestTooLargeError

_MAX_PARTS: Final = 256
_MAX_HEAD: Final = 8 * 1024
_MAX_BOUNDARY: Final = 200  # RFC 2046 section 5.1.1 allows 70
_MAX_PARAMETERS: Final = 32
# Lines that begin as the boundary does and go on as something else: chance makes none.
_MAX_LOOKALIKES: Final = 1000
_MAX_PADDING: Final = 256

# ``; name=value`` and ``; name="value"``, the quantifiers possessive: nothing matched is given back.
_PARAMETER: Final = re.compile(
    r""";[ \t]*+([^\s=;"]++)[ \t]*+=[ \t]*+(?:"((?:[^"\\]++|\\.)*+)"|([^;]*+))[ \t]*+""", re.DOTALL
)
_ESCAPED: Final = re.compile(r'\\(["\\])')


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a form; file_name is None for a plain field. The data are a view of the body."""

    name: str
    file_name: str | None
    data: memoryview


def split_parts(body: bytes | bytearray, content_type: str) -> list[Part]:
    """The parts of a form, in order.

    Raises:
        InvalidRequestError: no boundary, a part with a malformed or endless head, or no end.
        RequestTooLargeError: too many parts.
    """
    boundary = parameters(content_type).get("boundary", "")
    if not boundary or len(boundary) > _MAX_BOUNDARY:
        raise InvalidRequestError("the Content-Type names no boundary: let your HTTP client write it")
    parts: list[Part] = []
    for start, end in _spans(body, b"--" + boundary.encode("utf-8", "replace")):
        if len(parts) == _MAX_PARTS:
            raise RequestTooLargeError(f"the form has too many parts, expected at most {_MAX_PARTS}")
        parts.append(_part(body, start, end))
    return parts


def parameters(header: str) -> dict[str, str]:
    """The parameters of a Content-Type or Content-Disposition, by name in small letters; the first of a name counts."""
    found: dict[str, str] = {}
    position = header.find(";")
    for _ in range(_MAX_PARAMETERS):
        match = _PARAMETER.match(header, position) if position >= 0 else None
        if match is None:
            break
        quoted, plain = match[2], match[3]
        value = plain.strip() if quoted is None else _ESCAPED.sub(r"\1", quoted)
        found.setdefault(match[1].lower(), value)
        position = match.end()
    return found


def _spans(body: bytes | bytearray, delimiter: bytes) -> Iterator[tuple[int, int]]:
    """Where each part begins and ends, its head included."""
    # The first boundary may begin the body; every other one begins a line.
    found = _boundary(body, delimiter, 0) if body.startswith(delimiter) else None
    if found is None:
        found = _find(body, delimiter, 0)[1]
        if found is None:
            raise InvalidRequestError("the form is malformed: it does not hold its boundary")
    while found >= 0:
        start = found
        end, found_next = _find(body, delimiter, start - 2)  # a part may be nothing but the end of that line
        if found_next is None:
            raise InvalidRequestError("the form ends before its closing boundary")
        yield start, end
        found = found_next


def _find(body: bytes | bytearray, delimiter: bytes, position: int) -> tuple[int, int | None]:
    """Where the next line begins that is a boundary, its line end before it included, and what comes behind it."""
    line = b"\r\n" + delimiter
    for _ in range(_MAX_LOOKALIKES):
        at = body.find(line, position)
        if at < 0:
            return -1, None
        behind = _boundary(body, delimiter, at + 2)
        if behind is not None:
            return at, behind
        position = at + len(line)
    raise InvalidRequestError("the form is malformed: its boundary occurs within its parts again and again")


def _boundary(body: bytes | bytearray, delimiter: bytes, position: int) -> int | None:
    """Behind the line of the boundary at a position: -1 when it is the last one, None when it is none."""
    position += len(delimiter)
    if body.startswith(b"--", position):
        return -1
    end = body.find(b"\r\n", position, position + _MAX_PADDING)
    return end + 2 if end >= 0 and not body[position:end].strip(b" \t") else None


def _part(body: bytes | bytearray, start: int, end: int) -> Part:
    head_end = body.find(b"\r\n\r\n", start, min(start + _MAX_HEAD, end))
    if head_end < 0:
        raise InvalidRequestError(f"the form is malformed: a part's head does not end within {_MAX_HEAD} bytes")
    options = parameters(_disposition(bytes(body[start:head_end])))
    data = memoryview(body)[head_end + 4 : end]
    return Part(name=_text(options, "name") or "", file_name=_text(options, "filename"), data=data)


def _text(options: Mapping[str, str], name: str) -> str | None:
    """Return the value of a parameter in any of its three forms; None where it is not given.

    RFC 7578 has the plain form; RFC 8187 has ``name*=UTF-8''...``, which goes first (RFC 6266 section 4.3), and
    RFC 2231 has ``name*0`` and ``name*0*`` with the pieces of a long value.
    """
    whole = options.get(f"{name}*")
    if whole is not None or name in options:
        return options.get(name) if whole is None else _unescaped([whole], is_escaped=[True])
    pieces, is_escaped = list[str](), list[bool]()
    for index in range(_MAX_PARAMETERS):
        piece = options.get(f"{name}*{index}*", options.get(f"{name}*{index}"))
        if piece is None:
            break
        pieces.append(piece)
        is_escaped.append(f"{name}*{index}*" in options)
    return _unescaped(pieces, is_escaped) if pieces else None


def _unescaped(pieces: Sequence[str], is_escaped: Sequence[bool]) -> str:
    """Join the pieces of a value; an escaped first piece begins with ``charset'language'``."""
    first, charset = pieces[0], ""
    if is_escaped[0] and first.count("'") >= 2:
        charset, _, first = first.split("'", 2)
    raw = b"".join(
        unquote_to_bytes(piece) if escaped else piece.encode("utf-8", "replace")
        for piece, escaped in zip([first, *pieces[1:]], is_escaped, strict=True)
    )
    return raw.decode("iso-8859-1" if charset.lower() == "iso-8859-1" else "utf-8", "replace")


def _disposition(head: bytes) -> str:
    """The Content-Disposition of a part."""
    for line in head.split(b"\r\n"):
        key, colon, value = line.partition(b":")
        if not colon or key != key.strip():
            raise InvalidRequestError("the form is malformed: a line of a part's head is not 'name: value'")
        if key.lower() == b"content-disposition":
            return value.decode("utf-8", "replace")
    return ""
