"""Splitting of multipart/form-data (RFC 7578) into its parts, which are views of the body.

The work is bounded for any body: parts begin at the boundary, a part's head must end within a limit, and nothing is
copied.
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
# Limit of lines that begin with the boundary but continue differently, which does not happen by chance.
_MAX_LOOKALIKES: Final = 1000
_MAX_PADDING: Final = 256

# ``; name=value`` and ``; name="value"``. Possessive quantifiers prevent backtracking.
_PARAMETER: Final = re.compile(
    r""";[ \t]*+([^\s=;"]++)[ \t]*+=[ \t]*+(?:"((?:[^"\\]++|\\.)*+)"|([^;]*+))[ \t]*+""", re.DOTALL
)
_ESCAPED: Final = re.compile(r'\\(["\\])')


@dataclass(frozen=True, slots=True)
class Part:
    """Part of a form; file_name is None for a plain field, data is a view of the body."""

    name: str
    file_name: str | None
    data: memoryview


def split_parts(body: bytes | bytearray, content_type: str) -> list[Part]:
    """Return the parts of a form, in order.

    Raises:
        InvalidRequestError: no boundary, a part with a malformed or too long head, or no end.
        RequestTooLargeError: too many parts.
    """
    boundary = parameters(content_type).get("boundary", "")
    if not boundary or len(boundary) > _MAX_BOUNDARY:
        raise InvalidRequestError("Content-Type: found no boundary, expected one; let the HTTP client write the header")
    parts: list[Part] = []
    for start, end in _spans(body, b"--" + boundary.encode("utf-8", "replace")):
        if len(parts) == _MAX_PARTS:
            raise RequestTooLargeError(f"the form has too many parts, expected at most {_MAX_PARTS}")
        parts.append(_part(body, start, end))
    return parts


def parameters(header: str) -> dict[str, str]:
    """Return the parameters of a Content-Type or Content-Disposition by lower-case name; the first of a name counts."""
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
    """Yield where each part begins and ends, its head included."""
    # The first boundary may be at the start of the body; every other one is at the start of a line.
    found = _boundary(body, delimiter, 0) if body.startswith(delimiter) else None
    if found is None:
        found = _find(body, delimiter, 0)[1]
        if found is None:
            raise InvalidRequestError("the form is malformed: it does not contain its boundary")
    while found >= 0:
        start = found
        end, found_next = _find(body, delimiter, start - 2)  # an empty part consists of that line end only
        if found_next is None:
            raise InvalidRequestError("the form ends before its closing boundary")
        yield start, end
        found = found_next


def _find(body: bytes | bytearray, delimiter: bytes, position: int) -> tuple[int, int | None]:
    """Return where the line end before the next boundary begins, and what ``_boundary`` returns for it."""
    line = b"\r\n" + delimiter
    for _ in range(_MAX_LOOKALIKES):
        at = body.find(line, position)
        if at < 0:
            return -1, None
        behind = _boundary(body, delimiter, at + 2)
        if behind is not None:
            return at, behind
        position = at + len(line)
    raise InvalidRequestError(
        f"the form is malformed: its boundary occurs within its parts, expected at most {_MAX_LOOKALIKES} times"
    )


def _boundary(body: bytes | bytearray, delimiter: bytes, position: int) -> int | None:
    """Return the position after the line of a boundary, -1 after the last one, or None if there is no boundary."""
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
    """Return the Content-Disposition of a part."""
    for line in head.split(b"\r\n"):
        key, colon, value = line.partition(b":")
        if not colon or key != key.strip():
            raise InvalidRequestError("the form is malformed: a line of a part's head is not 'name: value'")
        if key.lower() == b"content-disposition":
            return value.decode("utf-8", "replace")
    return ""
