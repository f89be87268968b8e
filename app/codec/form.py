"""Decoding of multipart/form-data: images or sounds become a batch; .npy and .npz files become inputs by their field.

The type of a file is determined by its first bytes, since the type that curl and browsers send is a guess from its
name. A form is split into its parts (RFC 7578), which are views of the body. The work is bounded for any body: parts
begin at the boundary, a part's head must end within a limit, and nothing is copied.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote_to_bytes

import orjson

from app.codec.message import Message, output_names, read_version
from app.codec.numpy_files import NPY_MAGIC, ZIP_MAGIC, named, read_npy, read_npz
from app.errors import InputMismatchError, InvalidRequestError, RequestTooLargeError
from app.images.decode import Picture
from app.messages import cut, quoted
from app.settings import Settings
from app.signature import Input, Inputs, Signature
from app.sound.decode import format_of
from app.sound.sound import Sound, Sounds

_FIELDS: Final = ("model", "version", "outputs", "parameters")
# Most bytes of a plain field.
MAX_FIELD: Final = 64 * 1024
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


def parse_form(body: bytes | bytearray, content_type: str, settings: Settings) -> Message:
    """Return the message of a form: inputs from its files; plain fields have the same meaning as in JSON.

    Raises:
        InvalidRequestError: no boundary, a malformed part, an unknown plain field, or no file.
    """
    parts = split_parts(body, content_type)
    fields = _plain_fields(part for part in parts if part.file_name is None)
    files = [part for part in parts if part.file_name is not None]
    if not files:
        raise InvalidRequestError(
            "the form has no file, expected pictures, sounds, .npy or .npz, as in curl -F file=@cat.jpg"
        )
    outputs = fields.get("outputs")
    return Message(
        decode=lambda signature: _inputs(files, signature, settings),
        model=fields.get("model"),
        version=read_version(fields.get("version")),
        outputs=None if outputs is None else read_outputs(outputs),
        parameters=_parsed_parameters(fields.get("parameters", "{}")),
    )


def read_outputs(text: str) -> tuple[str, ...] | bool:
    """Return the outputs in a query string or form field: ``true``, ``false`` or comma-separated names.

    Raises:
        InvalidRequestError: a name is given twice, or there are too many.
    """
    lowered = text.lower()
    if lowered in ("true", "1", "false", "0"):
        return lowered in ("true", "1")
    return output_names([name.strip() for name in text.split(",") if name.strip()])


def _plain_fields(parts: Iterable[Part]) -> Mapping[str, str]:
    fields: dict[str, str] = {}
    for part in parts:
        if part.name not in _FIELDS:
            raise InvalidRequestError(
                f"unknown field '{cut(part.name)}', expected {quoted(_FIELDS)}, or files with a file name"
            )
        if len(part.data) > MAX_FIELD:
            raise RequestTooLargeError(
                f"the field '{part.name}' is too long: found {len(part.data)} bytes, expected at most {MAX_FIELD}",
                found=len(part.data),
                limit=MAX_FIELD,
            )
        fields[part.name] = bytes(part.data).decode("utf-8", "replace").strip()
    return fields


def _parsed_parameters(text: str) -> dict[str, Any]:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        raise InvalidRequestError("the field 'parameters': expected a JSON object such as {\"top_k\": 3}")
    return value


def _inputs(files: list[Part], signature: Signature, settings: Settings) -> Inputs:
    pictures: list[Picture] = []
    sounds: list[Sound] = []
    inputs: Inputs = {}
    for part in files:
        read = _reader(part)
        if read is not None:
            for name, value in read(part, signature, settings).items():
                _add(inputs, name, value)
        elif _is_sound(part, signature):
            sounds.append(_sound(part, len(sounds)))
            signature.content_port("sound")
        else:
            pictures.append(_picture(part, len(pictures)))
            port = signature.find_input(part.name)
            signature.content_port("picture", None if port is None else port.name)
    if pictures:
        _add(inputs, signature.content_port("picture").name, tuple(pictures))
    if sounds:
        _add(inputs, signature.content_port("sound").name, Sounds(tuple(sounds)))
    return inputs


def _is_sound(part: Part, signature: Signature) -> bool:
    """Return whether a file is a sound; one of an unknown format is what the model takes."""
    if format_of(bytes(part.data[:12])) is not None:
        return True
    return signature.takes("sound") is not None and signature.takes("picture") is None


def _add(inputs: Inputs, name: str, value: Input) -> None:
    if name in inputs:
        raise InputMismatchError(f"input '{name}' is given twice, expected once", input=name)
    inputs[name] = value


def _reader(part: Part) -> Callable[[Part, Signature, Settings], Inputs] | None:
    if _begins(part, NPY_MAGIC):
        return _npy
    return _npz if _begins(part, ZIP_MAGIC) else None


def _begins(part: Part, magic: bytes) -> bool:
    return bytes(part.data[: len(magic)]) == magic


def _npy(part: Part, signature: Signature, settings: Settings) -> Inputs:
    port = signature.only_input() if len(signature.requested) == 1 else signature.input(part.name)
    return {port.name: read_npy(part.data, settings, f"the file '{_file_name(part)}'")}


def _npz(part: Part, signature: Signature, settings: Settings) -> Inputs:
    return named(read_npz(part.data, settings), signature)


def _picture(part: Part, index: int) -> Picture:
    return Picture(data=part.data, label=f"picture {index + 1} ('{_file_name(part)}')")


def _sound(part: Part, index: int) -> Sound:
    return Sound(part.data, f"sound {index + 1} ('{_file_name(part)}')")


def _file_name(part: Part) -> str:
    return cut(part.file_name or "")


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
    return Part(name=_option(options, "name") or "", file_name=_option(options, "filename"), data=data)


def _option(options: Mapping[str, str], name: str) -> str | None:
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
