"""Decoding of multipart/form-data: images become a batch; .npy and .npz files become inputs named by their field.

The type of a file is determined by its first bytes, since the type that curl and browsers send is a guess from its
name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import orjson

from app.codec.message import Message, output_names, read_version
from app.codec.multipart import Part, split_parts
from app.codec.numpy_files import NPY_MAGIC, ZIP_MAGIC, named, read_npy, read_npz
from app.errors import InputMismatchError, InvalidRequestError, RequestTooLargeError
from app.images.decode import Picture
from app.messages import cut, quoted
from app.settings import Settings
from app.signature import Input, Inputs, Signature

_FIELDS: Final = ("model", "version", "outputs", "parameters")
# Most bytes of a plain field.
_MAX_FIELD: Final = 64 * 1024


def parse_form(body: bytes | bytearray, content_type: str, settings: Settings) -> Message:
    """Return the message of a form: inputs from its files; plain fields have the same meaning as in JSON.

    Raises:
        InvalidRequestError: no boundary, a malformed part, an unknown plain field, or no file.
    """
    parts = split_parts(body, content_type)
    fields = _plain_fields(part for part in parts if part.file_name is None)
    files = [part for part in parts if part.file_name is not None]
    if not files:
        raise InvalidRequestError("the form has no file, expected pictures, .npy or .npz, as in curl -F file=@cat.jpg")
    outputs = fields.get("outputs")
    return Message(
        decode=lambda signature: _inputs(files, signature, settings),
        model=fields.get("model"),
        version=read_version(fields.get("version")),
        outputs=None if outputs is None else read_outputs(outputs),
        parameters=_parameters(fields.get("parameters", "{}")),
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
        if len(part.data) > _MAX_FIELD:
            raise RequestTooLargeError(
                f"the field '{part.name}' is too long: found {len(part.data)} bytes, expected at most {_MAX_FIELD}",
                found=len(part.data),
                limit=_MAX_FIELD,
            )
        fields[part.name] = bytes(part.data).decode("utf-8", "replace").strip()
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
            port = signature.find_input(part.name)
            signature.picture_port(None if port is None else port.name)
            continue
        for name, value in read(part, signature, settings).items():
            _add(inputs, name, value)
    if pictures:
        _add(inputs, signature.picture_port().name, tuple(pictures))
    return inputs


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
    port = signature.only_input() if len(signature.inputs) == 1 else signature.input(part.name)
    return {port.name: read_npy(part.data, settings, f"the file '{_file_name(part)}'")}


def _npz(part: Part, signature: Signature, settings: Settings) -> Inputs:
    return named(read_npz(part.data, settings), signature)


def _picture(part: Part, index: int) -> Picture:
    return Picture(data=part.data, label=f"picture {index + 1} ('{_file_name(part)}')")


def _file_name(part: Part) -> str:
    return cut(part.file_name or "")
