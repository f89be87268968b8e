"""multipart/form-data -> Message: pictures become a batch, .npy and .npz parts become inputs by their field's name.

Parts are told apart by their first bytes: what curl and browsers say of a file's type is a guess from its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from app.codec.arrays_body import named
from app.codec.message import Message, read_version
from app.codec.numpy_files import NPY_MAGIC, ZIP_MAGIC, read_npy, read_npz
from app.errors import InputMismatchError, InvalidRequestError, RequestTooLargeError
from app.images.decode import Picture
from app.settings import Settings
from app.signature import Input, Inputs, Signature
from app.wording import quoted

_FIELDS: Final = ("model", "version", "outputs", "parameters")
_MAX_PARTS: Final = 256


@dataclass(slots=True)
class Part:
    """One part of a form; file_name is None for a plain field."""

    name: str = ""
    file_name: str | None = None
    headers: dict[bytes, bytes] = field(default_factory=dict)
    data: bytearray = field(default_factory=bytearray)


def parse_form(body: bytes | bytearray, content_type: str, settings: Settings) -> Message:
    """A form's files as inputs, its plain fields ``model``, ``version``, ``outputs``, ``parameters`` as in JSON.

    Raises:
        InvalidRequestError: no boundary, a malformed part, an unknown plain field, or no file.
    """
    parts = split_parts(body, content_type)
    fields = _plain_fields(part for part in parts if part.file_name is None)
    files = [part for part in parts if part.file_name is not None]
    if not files:
        raise InvalidRequestError("the form holds no file: send pictures, .npy or .npz, as in curl -F file=@cat.jpg")
    outputs = fields.get("outputs")
    return Message(
        decode=lambda signature: _inputs(files, signature, settings),
        model=fields.get("model"),
        version=read_version(fields.get("version")),
        outputs=None if outputs is None else read_outputs(outputs),
        parameters=_parameters(fields.get("parameters", "{}")),
    )


def split_parts(body: bytes | bytearray, content_type: str) -> list[Part]:
    """The parts of a form, in order."""
    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if not boundary:
        raise InvalidRequestError("the Content-Type names no boundary: let your HTTP client write it")
    collector = _Collector()
    try:
        parser = MultipartParser(boundary, collector.callbacks)
        parser.write(bytes(body))
        parser.finalize()
    except FormParserError as exc:
        raise InvalidRequestError(f"the form is malformed: {exc}") from None
    if not collector.ended:
        raise InvalidRequestError("the form ends before its closing boundary")
    return collector.parts


def read_outputs(text: str) -> tuple[str, ...] | bool:
    """``true``, ``false`` or names by comma, as query strings and form fields have them."""
    lowered = text.lower()
    if lowered in ("true", "1", "false", "0"):
        return lowered in ("true", "1")
    return tuple(name.strip() for name in text.split(",") if name.strip())


class _Collector:
    """Receives the parser's events."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.ended = False
        self._header: tuple[bytearray, bytearray] = (bytearray(), bytearray())

    @property
    def callbacks(self) -> Any:
        """What MultipartParser calls."""
        return {
            "on_part_begin": self._begin,
            "on_header_field": lambda data, start, end: self._header[0].extend(data[start:end]),
            "on_header_value": lambda data, start, end: self._header[1].extend(data[start:end]),
            "on_header_end": self._end_header,
            "on_headers_finished": self._name,
            "on_part_data": lambda data, start, end: self.parts[-1].data.extend(memoryview(data)[start:end]),
            "on_end": self._end,
        }

    def _begin(self) -> None:
        if len(self.parts) == _MAX_PARTS:
            raise RequestTooLargeError(f"the form has too many parts, expected at most {_MAX_PARTS}")
        self.parts.append(Part())

    def _end_header(self) -> None:
        key, value = self._header
        self.parts[-1].headers[bytes(key).lower()] = bytes(value)
        self._header = (bytearray(), bytearray())

    def _name(self) -> None:
        part = self.parts[-1]
        _, options = parse_options_header(part.headers.get(b"content-disposition", b""))
        part.name = options.get(b"name", b"").decode("utf-8", "replace")
        if b"filename" in options:
            part.file_name = options[b"filename"].decode("utf-8", "replace")

    def _end(self) -> None:
        self.ended = True


def _plain_fields(parts: Any) -> Mapping[str, str]:
    fields: dict[str, str] = {}
    for part in parts:
        if part.name not in _FIELDS:
            raise InvalidRequestError(
                f"unknown field '{part.name}', expected {quoted(_FIELDS)}, or files with a file name"
            )
        fields[part.name] = part.data.decode("utf-8", "replace").strip()
    return fields


def _parameters(text: str) -> dict[str, Any]:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        raise InvalidRequestError("the field 'parameters': expected a JSON object such as {\"top_k\": 3}")
    return value


def _inputs(files: list[Part], signature: Signature, settings: Settings) -> Inputs:
    pictures: list[Picture] = []
    inputs: Inputs = {}
    for part in files:
        read = _reader(part)
        if read is None:
            pictures.append(_picture(part, len(pictures)))
            signature.picture_port(part.name if part.name in signature.input_names else None)
            continue
        for name, value in read(part, signature, settings).items():
            _add(inputs, name, value)
    if pictures:
        _add(inputs, signature.picture_port().name, tuple(pictures))
    return inputs


def _add(inputs: Inputs, name: str, value: Input) -> None:
    if name in inputs:
        raise InputMismatchError(f"input '{name}' is given twice", input=name)
    inputs[name] = value


def _reader(part: Part) -> Callable[[Part, Signature, Settings], Inputs] | None:
    if part.data.startswith(NPY_MAGIC):
        return _npy
    return _npz if part.data.startswith(ZIP_MAGIC) else None


def _npy(part: Part, signature: Signature, settings: Settings) -> Inputs:
    port = signature.only_input() if len(signature.inputs) == 1 else signature.input(part.name)
    return {port.name: read_npy(part.data, settings, f"the file '{part.file_name}'")}


def _npz(part: Part, signature: Signature, settings: Settings) -> Inputs:
    return named(read_npz(part.data, settings), signature)


def _picture(part: Part, index: int) -> Picture:
    return Picture(data=part.data, label=f"picture {index + 1} ('{part.file_name}')")
