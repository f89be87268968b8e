"""Decoding of JSON bodies: counted before they are parsed, with large tensors parsed in pieces."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final

import orjson

from app.codec.json_lists import check_counts, check_parsed, cut_long, not_json, put_back
from app.codec.json_tensors import decode_inputs
from app.codec.message import MAX_OUTPUTS, Message, output_names, read_version
from app.codec.texts import read_texts, text_inputs
from app.errors import InvalidRequestError
from app.messages import cut, did_you_mean, quoted
from app.settings import Settings
from app.signature import Inputs, Signature

# Bodies from this length on cause advice about binary formats.
_LONG: Final = 1 << 16
# Limit of a name's length, since names are looked up on the event loop.
_MAX_NAME: Final = 10_000
_KEYS: Final = ("model", "version", "inputs", "outputs", "parameters", "image", "audio", "text")


def parse_json_body(body: bytes | bytearray, settings: Settings) -> Message:
    """Return the message of ``{"inputs", "model"?, "version"?, "outputs"?, "parameters"?}``.

    In place of ``"inputs"`` there may be ``"image"``, ``"audio"`` or ``"text"``.

    Raises:
        InvalidRequestError: not JSON, not an object, an unknown key, or a value of the wrong type.
    """
    document = parse_request_json(body)
    _check_keys(document)
    if "text" in document:
        decode: Callable[[Signature], Inputs] = partial(text_inputs, read_texts(document["text"], "text"))
    else:
        inputs = document["inputs"] if "inputs" in document else _media(document)
        decode = partial(decode_inputs, inputs, settings=settings)
    return Message(
        decode=decode,
        model=_text(document, "model"),
        version=read_version(document.get("version")),
        outputs=_outputs(document.get("outputs")),
        parameters=_parameters(document.get("parameters")),
        is_long_text=len(body) > _LONG,
    )


def _check_keys(document: Any) -> None:
    if not isinstance(document, dict):
        raise InvalidRequestError('the body: expected a JSON object such as {"inputs": [[1, 2, 3]]}')
    if _is_v2(document.get("inputs")):
        raise InvalidRequestError(
            "the body: found a request of the Open Inference Protocol, expected"
            ' {"inputs": {name: {"shape", "dtype", "data"}}}; or send it to POST /v2/models/NAME/infer'
        )
    for key in document:
        if key not in _KEYS:
            raise InvalidRequestError(f"unknown key '{cut(key)}'{did_you_mean(key, _KEYS)}, expected {quoted(_KEYS)}")
    if sum(key in document for key in ("inputs", "image", "audio", "text")) != 1:
        raise InvalidRequestError("the body: expected one of 'inputs', 'image', 'audio' and 'text'")


def _media(document: dict[str, Any]) -> dict[str, Any]:
    key = "image" if "image" in document else "audio"
    return {key: document[key]}


def _is_v2(inputs: object) -> bool:
    """Return whether these are inputs of the Open Inference Protocol: objects with name and datatype."""
    first = inputs[0] if isinstance(inputs, list) and inputs else None
    return isinstance(first, dict) and {"name", "datatype"} <= set(first)


def _text(document: dict[str, Any], key: str) -> str | None:
    value = document.get(key)
    if value is not None and not isinstance(value, str):
        raise InvalidRequestError(f"{key}: expected a string")
    if value is not None and len(value) > _MAX_NAME:
        raise InvalidRequestError(f"{key}: found {len(value):,} characters, expected at most {_MAX_NAME:,}")
    return value


def _outputs(value: object) -> tuple[str, ...] | bool | None:
    if value is None or isinstance(value, bool):
        return value
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value[: MAX_OUTPUTS + 1]):
        raise InvalidRequestError("outputs: expected a list of output names")
    return output_names(value)


def _parameters(value: object) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidRequestError("parameters: expected an object")
    return value


# Texts up to this size become so few objects that the garbage collector need not be disabled.
_SMALL: Final = 1 << 14


def parse_json(body: bytes | bytearray) -> Any:
    """Return the value of a JSON text.

    Raises:
        InvalidRequestError: not JSON, NaN or Infinity (which JSON lacks), or nested too deep.
        RequestTooLargeError, QueueFullError: not enough memory, or more values, lists, strings or escapes than
            requests need.
    """
    check_counts(body)
    check_parsed(body)
    return _loads(body)


def parse_request_json(body: bytes | bytearray) -> Any:
    """Return the value of a JSON text with "inputs": a large tensor is a ``LongList``, long base64 a memoryview.

    Raises:
        As ``parse_json``.
    """
    check_counts(body)
    if (cut := cut_long(body)) is not None:
        around, found = cut
        check_parsed(around)
        with suppress(InvalidRequestError):  # parse the whole text below, for the right position in the message
            document = _loads(around)
            if put_back(document, found):
                return document
    check_parsed(body)
    return _loads(body)


def _loads(body: bytes | bytearray) -> Any:
    try:
        if len(body) <= _SMALL:
            return orjson.loads(body)
        with without_collector():
            return orjson.loads(body)
    except orjson.JSONDecodeError as exc:
        raise not_json(exc, f"line {exc.lineno} column {exc.colno}") from None


@contextmanager
def without_collector() -> Iterator[None]:
    """Disable the garbage collector while millions of lists without cycles are made, which it would search in vain."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
