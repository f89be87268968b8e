"""A JSON body -> Message."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from app.codec.json.parsed import Parsed
from app.codec.json.tensors import decode_inputs
from app.codec.json.text import parse_request_json
from app.codec.message import Message, read_version
from app.errors import InvalidRequestError, ServiceError
from app.settings import Settings
from app.signature import Inputs, Signature
from app.wording import cut, did_you_mean, quoted

# What is made of smaller bodies is freed in no time.
_SMALL: Final = 1 << 16
_KEYS: Final = ("model", "version", "inputs", "outputs", "parameters", "image")


def parse_json_body(body: bytes | bytearray, settings: Settings) -> Message:
    """``{"inputs", "model"?, "version"?, "outputs"?, "parameters"?}``; ``{"image"}`` is short for it as inputs.

    Raises:
        InvalidRequestError: not JSON, not an object, an unknown key, or a key of the wrong kind.
    """
    document = parse_request_json(body, max_depth=settings.max_json_depth)
    if len(body) <= _SMALL:
        return _message(document, partial(decode_inputs, _inputs(document), settings=settings))
    parsed = Parsed(document)
    del document  # the frames of an exception live until somebody on the event loop has seen it
    try:
        _inputs(parsed.value)
        return _message(parsed.value, partial(_decode_once, parsed, settings=settings), is_long=True)
    except ServiceError:
        parsed.release()
        raise


def _decode_once(parsed: Parsed, signature: Signature, settings: Settings) -> Inputs:
    """The inputs; the millions of values they were made of are released here, a piece at a time."""
    is_even = False
    try:
        inputs = decode_inputs(_inputs(parsed.value), signature, settings)
        is_even = True
        return inputs
    finally:
        parsed.release(is_even=is_even)


def _inputs(document: Any) -> Any:
    if not isinstance(document, dict):
        raise InvalidRequestError('the body: expected a JSON object such as {"inputs": [[1, 2, 3]]}')
    if _is_v2(document.get("inputs")):
        raise InvalidRequestError(
            "the body is of the Open Inference Protocol: send it to POST /v2/models/NAME/infer, or as"
            ' {"inputs": {name: {"shape", "dtype", "data"}}}'
        )
    for key in document:
        if key not in _KEYS:
            raise InvalidRequestError(f"unknown key '{cut(key)}'{did_you_mean(key, _KEYS)}, expected {quoted(_KEYS)}")
    if ("inputs" in document) == ("image" in document):
        raise InvalidRequestError("the body: expected either 'inputs' or 'image'")
    return document["inputs"] if "inputs" in document else {"image": document["image"]}


def _is_v2(inputs: object) -> bool:
    """Whether these are inputs as the Open Inference Protocol has them: objects with name and datatype."""
    first = inputs[0] if isinstance(inputs, list) and inputs else None
    return isinstance(first, dict) and {"name", "datatype"} <= set(first)


def _message(document: dict[str, Any], decode: Callable[[Signature], Inputs], *, is_long: bool = False) -> Message:
    return Message(
        decode=decode,
        model=_text(document, "model"),
        version=read_version(document.get("version")),
        outputs=_outputs(document.get("outputs")),
        parameters=_parameters(document.get("parameters")),
        is_long_text=is_long,
    )


def _text(document: dict[str, Any], key: str) -> str | None:
    value = document.get(key)
    if value is not None and not isinstance(value, str):
        raise InvalidRequestError(f"{key}: expected a string")
    return value


def _outputs(value: object) -> tuple[str, ...] | bool | None:
    if value is None or isinstance(value, bool):
        return value
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise InvalidRequestError("outputs: expected a list of output names")
    return tuple(dict.fromkeys(value))


def _parameters(value: object) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidRequestError("parameters: expected an object")
    return dict(value)  # of its own: the document is emptied once its inputs are decoded
