"""Parsing of an inference request. Tensors stay in their transmitted form until the model is known.

A body is a JSON object followed by the tensors that are sent as bytes; a header gives the length of the JSON. A length
of 0 means that there is no JSON, and the body is the only input.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from app.codec.json_body import parse_request_json
from app.errors import RefusedError
from app.messages import brief, cut
from app.models.sequences import SequenceStep
from app.protocol.v2.shared_memory import REGION, RegionSlice, read_slice
from app.settings import Settings

HEADER_LENGTH: Final = "inference-header-content-length"
_MAX_RANK: Final = 32
_MAX_DIGITS: Final = 18
_MAX_ITEMS: Final = 10_000
# Characters of a name, a datatype or an id, which are handled on the event loop.
_MAX_TEXT: Final = 10_000
_MAX_SEQUENCE_ID: Final = 256
_SOURCES: Final = ("data", "binary_data_size", REGION)
_NONE: Final[Mapping[str, Any]] = {}


class RequestInput(NamedTuple):
    """Input of a request.

    Args:
        data: value from the JSON, or a view of bytes sent separately; None if the bytes follow the JSON.
        size: of the bytes that follow the JSON, or None.
        region_slice: shared memory that holds the bytes, or None.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    parameters: Mapping[str, Any]
    data: Any = None
    size: int | None = None
    region_slice: RegionSlice | None = None


class RequestedOutput(NamedTuple):
    """Output that a request asks for.

    Args:
        binary: whether it is sent as bytes; None for the request's default.
        classes: number of best classes to return in place of the tensor.
        region_slice: shared memory to write the bytes to, or None.
    """

    name: str
    binary: bool | None = None
    classes: int | None = None
    region_slice: RegionSlice | None = None
    parameters: Mapping[str, Any] = _NONE


class V2Request(NamedTuple):
    """Contents of a request.

    Args:
        inputs: None for a raw body.
        tail: the bytes after the JSON.
        outputs: None for all.
    """

    inputs: tuple[RequestInput, ...] | None
    tail: memoryview
    id: str | None = None
    parameters: Mapping[str, Any] = _NONE
    outputs: tuple[RequestedOutput, ...] | None = None

    @property
    def is_binary(self) -> bool:
        """Return whether outputs are sent as bytes by default."""
        return self.inputs is None or read_flag(self.parameters, "binary_data_output") or False


def read_header_length(value: str | None, size: int) -> int:
    """Return the length of the JSON in a body of that size.

    Raises:
        RefusedError: it is not within the body.
    """
    if value is None:
        return size
    text = value.strip()
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS and int(text) <= size):
        raise RefusedError(f"inference header size should be in range (0, {size}), got: {cut(text)}")
    return int(text)


def parse_request(body: bytes | bytearray, header_length: int, settings: Settings) -> V2Request:
    """Return the contents of a body.

    Raises:
        InvalidRequestError: the body is not JSON, or violates the protocol.
        RequestTooLargeError, QueueFullError: not enough memory for the parsed body.
    """
    whole = memoryview(body)
    if not header_length and body:
        return V2Request(inputs=None, tail=whole)
    head = body if header_length == len(body) else bytes(whole[:header_length])
    document = parse_request_json(head)
    return read_request(document, whole[header_length:])


def read_request(document: Any, tail: memoryview) -> V2Request:
    """Return the request in a parsed JSON document; each input's ``data`` may be a view of its bytes.

    Raises:
        RefusedError: the document violates the protocol.
    """
    if not isinstance(document, dict):
        raise RefusedError("failed to parse the request: expected a JSON object with 'inputs'")
    inputs = _objects(document, "inputs")
    if not inputs:
        raise RefusedError("the request has no 'inputs', expected a list of tensors")
    parameters = _parameters(document, "the request")
    for key in parameters:
        if key.startswith("triton_"):
            raise RefusedError(f"parameter '{cut(key)}': names that begin with 'triton_' are reserved")
    outputs = tuple(map(_requested_output, _objects(document, "outputs")))
    return V2Request(
        inputs=tuple(map(_request_input, inputs)),
        tail=tail,
        id=_id(document.get("id")),
        parameters=parameters,
        outputs=outputs or None,
    )


def _objects(document: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    items = document.get(key)
    if items is None:
        return []
    if isinstance(items, list) and len(items) > _MAX_ITEMS:
        raise RefusedError(f"{key}: found {len(items)}, expected at most {_MAX_ITEMS}")
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise RefusedError(f"{key}: expected a list of objects")
    return items


def _request_input(item: Mapping[str, Any]) -> RequestInput:
    name = _text(item, "name", "an input")
    where = f"input '{cut(name)}'"
    parameters = _parameters(item, where)
    sources = [key for key in _SOURCES if key in (item if key == "data" else parameters)]
    if len(sources) != 1:
        found = ", ".join(f"'{key}'" for key in sources) or "none"
        raise RefusedError(
            f"{where}: Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters',"
            f" 'shared_memory_region' in 'parameters'; found {found}"
        )
    size = _size(parameters["binary_data_size"], where) if sources == ["binary_data_size"] else None
    return RequestInput(
        name=name,
        datatype=_text(item, "datatype", where),
        shape=_shape(item.get("shape"), where),
        parameters=parameters,
        data=item.get("data"),
        size=size,
        region_slice=read_slice(parameters, where),
    )


def _requested_output(item: Mapping[str, Any]) -> RequestedOutput:
    name = _text(item, "name", "an output")
    where = f"output '{cut(name)}'"
    parameters = _parameters(item, where)
    classes = parameters.get("classification")
    if classes is not None and (type(classes) is not int or classes < 0):
        raise RefusedError(f"Unable to parse 'classification' of output '{cut(name)}': found {brief(classes)}, expected"
                           " a whole number")  # fmt: skip
    return RequestedOutput(
        name=name,
        binary=read_flag(parameters, "binary_data"),
        classes=classes or None,
        region_slice=read_slice(parameters, where),
        parameters=parameters,
    )


def _id(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise RefusedError(f"Unable to parse 'id': found {brief(value)}, expected a string")
    return _bounded(value, "id") or None


def _text(item: Mapping[str, Any], key: str, where: str) -> str:
    value = item.get(key)
    if not isinstance(value, str) or not value:
        raise RefusedError(f"{where}: Unable to parse '{key}': found {brief(value)}, expected a string")
    return _bounded(value, f"{where}: {key}")


def _bounded(text: str | None, where: str) -> str:
    if text is not None and len(text) > _MAX_TEXT:
        raise RefusedError(f"{where}: found {len(text):,} characters, expected at most {_MAX_TEXT:,}")
    return text or ""


def _shape(value: object, where: str) -> tuple[int, ...]:
    is_short = isinstance(value, list) and len(value) <= _MAX_RANK
    if not isinstance(value, list) or not is_short or not all(type(x) is int and 0 <= x < 2**63 for x in value):
        raise RefusedError(f"{where}: Unable to parse 'shape': found {brief(value)}, expected a list of whole numbers")
    return tuple(value)


def _size(value: object, where: str) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise RefusedError(
            f"{where}: Unable to parse 'binary_data_size': found {brief(value)}, expected a whole number"
        )
    return value


def _parameters(item: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    value = item.get("parameters")
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RefusedError(f"{where}: Unable to parse 'parameters': found {brief(value)}, expected an object")
    return value


def read_flag(parameters: Mapping[str, Any], key: str) -> bool | None:
    """Return a boolean parameter, or None if it is not given.

    Raises:
        RefusedError: the value is not a boolean.
    """
    value = parameters.get(key)
    if value is not None and not isinstance(value, bool):
        raise RefusedError(f"Unable to parse '{key}': found {brief(value)}, expected true or false")
    return value


def read_count(parameters: Mapping[str, Any], key: str) -> int | None:
    """Return a parameter that is a whole number from 0 on, or None if it is not given.

    Raises:
        RefusedError: the value is something else.
    """
    value = parameters.get(key)
    if value is not None and (type(value) is not int or not 0 <= value < 2**64):
        raise RefusedError(f"Unable to parse '{key}': found {brief(value)}, expected a whole number")
    return value


def read_sequence(parameters: Mapping[str, Any], client: bytes) -> SequenceStep | None:
    """Return the place of a request in its sequence, or None if it belongs to none.

    Args:
        parameters: of the request. As in Triton, a ``sequence_id`` of 0 or an empty text means none.
        client: identifies the client's key.

    Raises:
        RefusedError: a parameter has another type, or the id is missing.
    """
    id_ = parameters.get("sequence_id")
    is_number = type(id_) is int and 0 <= id_ < 2**64
    is_text = isinstance(id_, str) and len(id_) <= _MAX_SEQUENCE_ID
    if id_ is not None and not is_number and not is_text:
        raise RefusedError(
            f"Unable to parse 'sequence_id': found {brief(id_)}, expected a whole number from 0 to 2^64 - 1, or a"
            f" text of at most {_MAX_SEQUENCE_ID} characters"
        )
    is_start, is_end = (read_flag(parameters, f"sequence_{end}") or False for end in ("start", "end"))
    if not id_ and (is_start or is_end):
        raise RefusedError("the request has sequence_start or sequence_end, expected 'sequence_id' with it")
    return SequenceStep(client, id_, is_start, is_end) if id_ else None
