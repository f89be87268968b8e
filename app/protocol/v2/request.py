"""The bytes of an inference request -> what it says; its tensors stay as they were sent until a model is known.

A body is a JSON object, which the tensors that are sent as bytes follow; a header says where they begin. Where it says
0 there is no JSON, and the body is the one tensor of the one input.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from app.codec.json.text import parse_request_json
from app.errors import RefusedError
from app.messages import brief, cut
from app.protocol.v2.shared_memory import REGION, RegionSlice, read_slice
from app.settings import Settings

HEADER_LENGTH: Final = "inference-header-content-length"
_MAX_RANK: Final = 32
_MAX_DIGITS: Final = 18
_MAX_ITEMS: Final = 10_000
# Characters of a name, a datatype or an id, which is looked up or repeated on the event loop.
_MAX_TEXT: Final = 10_000
_SOURCES: Final = ("data", "binary_data_size", REGION)
_NONE: Final[Mapping[str, Any]] = {}


class RequestInput(NamedTuple):
    """One input of a request.

    Args:
        data: what JSON gives, or a view of bytes that came by themselves; unset where they follow the JSON.
        size: of the bytes that follow, None where none do.
        region_slice: in shared memory, where they lie there.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    parameters: Mapping[str, Any]
    data: Any = None
    size: int | None = None
    region_slice: RegionSlice | None = None


class RequestedOutput(NamedTuple):
    """One output that a request asks for.

    Args:
        binary: whether as bytes; None for what holds for all.
        classes: as so many classes, best first, in region_slice of the tensor.
        region_slice: in shared memory, where it is to be put.
    """

    name: str
    binary: bool | None = None
    classes: int | None = None
    region_slice: RegionSlice | None = None
    parameters: Mapping[str, Any] = _NONE


class V2Request(NamedTuple):
    """What a request says.

    Args:
        inputs: None for a raw body.
        outputs: None for all.
        tail: the bytes behind the JSON.
    """

    inputs: tuple[RequestInput, ...] | None
    tail: memoryview
    id: str | None = None
    parameters: Mapping[str, Any] = _NONE
    outputs: tuple[RequestedOutput, ...] | None = None

    @property
    def is_binary(self) -> bool:
        """Whether outputs are wanted as bytes where nothing else is said of them."""
        return self.inputs is None or read_flag(self.parameters, "binary_data_output") or False


def read_header_length(value: str | None, size: int) -> int:
    """Where the bytes of tensors begin in a body of that size.

    Raises:
        RefusedError: not within the body.
    """
    if value is None:
        return size
    text = value.strip()
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS and int(text) <= size):
        raise RefusedError(f"inference header size should be in range (0, {size}), got: {cut(text)}")
    return int(text)


def parse_request(body: bytes | bytearray, header_length: int, settings: Settings) -> V2Request:
    """What a body says.

    Raises:
        InvalidRequestError: not JSON, or of another form than the protocol's.
        RequestTooLargeError, QueueFullError: not enough memory for what it becomes.
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
        RefusedError: it is of another form than the protocol's.
    """
    if not isinstance(document, dict):
        raise RefusedError("failed to parse the request: expected a JSON object with 'inputs'")
    inputs = _objects(document, "inputs")
    if not inputs:
        raise RefusedError("the request has no 'inputs': expected a list of tensors")
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
    """True or false of a parameter; None where it is not given.

    Raises:
        RefusedError: it is something else.
    """
    value = parameters.get(key)
    if value is not None and not isinstance(value, bool):
        raise RefusedError(f"Unable to parse '{key}': found {brief(value)}, expected true or false")
    return value


def read_count(parameters: Mapping[str, Any], key: str) -> int | None:
    """A whole number, none negative, of a parameter; None where it is not given.

    Raises:
        RefusedError: it is something else.
    """
    value = parameters.get(key)
    if value is not None and (type(value) is not int or not 0 <= value < 2**64):
        raise RefusedError(f"Unable to parse '{key}': found {brief(value)}, expected a whole number")
    return value
