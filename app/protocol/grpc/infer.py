"""Conversion of ModelInferRequest bytes to a request, and of results to ModelInferResponse bytes.

The tensors of a request are either all raw bytes (``raw_input_contents``) or all numbers in the message
(``contents``). The answer uses the same form if its datatypes have numbers.

protobuf copies bytes when it parses and again when it returns a field, which is too slow for large tensors. Everything
but the tensors is small and left to protobuf. https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from app.errors import RefusedError
from app.memory.reservation import charge, charged
from app.messages import cut
from app.protocol.grpc.schema import message_class, parse, read_parameters
from app.protocol.v2.outputs import Plan, encode_separately
from app.protocol.v2.ports import BYTES, dtype_of
from app.protocol.v2.request import V2Request, read_request
from app.protocol.v2.shared_memory import REGION

_RAW_INPUTS: Final = 7
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MORE: Final = 0x80
_MAX_VARINT: Final = 10
# Limit of fields (tensors, parameters and outputs) in a request; each takes a microsecond.
_MAX_FIELDS: Final = 1 << 16

Piece = bytes | memoryview
_REQUEST: Final = message_class("ModelInferRequest")
_RESPONSE: Final = message_class("ModelInferResponse")
# Field of ``contents`` for each datatype. FP16 and BF16 have none.
_CONTENTS: Final = {
    "BOOL": "bool_contents",
    "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents", "UINT64": "uint64_contents",
    "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents", "INT64": "int64_contents",
    "FP32": "fp32_contents", "FP64": "fp64_contents", BYTES: "bytes_contents",
}  # fmt: skip
_RAW_OUTPUTS: Final = 6
# Memory of a parsed message in multiples of its bytes, at most: a small number is one byte sent and eight in memory.
_PARSED: Final = 10
_SMALL: Final = 1 << 16
# Longer shapes are refused anyway, so the rest is not read.
_RANK: Final = 64
# Bytes of a Python number in a list.
_LISTED: Final = 40
# Triton's parameters for the transport.
_ASKS_FOR_FINAL: Final = "triton_enable_empty_final_response"
_IS_FINAL: Final = "triton_final_response"


def take_tensors(data: bytes) -> tuple[bytes, list[memoryview]]:
    """Return a ModelInferRequest without its raw_input_contents, and these as views.

    Raises:
        RefusedError: the bytes are not such a message, or it has too many fields.
    """
    view = memoryview(data)
    rest: list[memoryview] = []
    tensors: list[memoryview] = []
    kept = at = 0
    for _ in range(_MAX_FIELDS):
        if at == len(data):
            if not tensors:
                return data, tensors
            return b"".join([*rest, view[kept:]]), tensors
        start = at
        key, at = _varint(data, at)
        at, end = _extent(data, at, key & 7)
        if key == _RAW_INPUTS << 3 | _BYTES:
            rest.append(view[kept:start])
            tensors.append(view[at:end])
            kept = end
        at = end
    raise RefusedError(f"the message has too many fields: expected at most {_MAX_FIELDS}")


def field(number: int, pieces: Sequence[Piece]) -> Iterable[Piece]:
    """Yield the pieces of a field of bytes or of an embedded message."""
    yield _as_varint(number << 3 | _BYTES) + _as_varint(sum(map(len, pieces)))
    yield from pieces


def _extent(data: bytes, at: int, kind: int) -> tuple[int, int]:
    """Return where a value begins and ends."""
    if kind == _BYTES:
        length, at = _varint(data, at)
        end = at + length
    elif kind == _VARINT:
        end = _varint(data, at)[1]
    elif kind in (_FIXED64, _FIXED32):
        end = at + (8 if kind == _FIXED64 else 4)
    else:
        raise _unreadable(data)
    if end > len(data):
        raise _unreadable(data)
    return at, end


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    for position in range(at, min(at + _MAX_VARINT, len(data))):
        byte = data[position]
        value |= (byte & ~_MORE) << shift
        if byte < _MORE:
            return value, position + 1
        shift += 7
    raise _unreadable(data)


def _as_varint(value: int) -> bytes:
    found = bytearray()
    while value >= _MORE:
        found.append(value & ~_MORE & 0xFF | _MORE)
        value >>= 7
    found.append(value)
    return bytes(found)


def _unreadable(data: bytes) -> RefusedError:
    return RefusedError(f"found {len(data)} bytes that cannot be parsed, expected a ModelInferRequest")


@dataclass(frozen=True, slots=True, kw_only=True)
class InferMessage:
    """Contents of a ModelInferRequest.

    Args:
        model: name of the model.
        version: None for the newest.
        request: the parsed request.
        has_numbers: whether its tensors came as numbers.
        asks_for_final: whether the client wants the last answer to be marked.
    """

    model: str
    version: str | None
    request: V2Request
    has_numbers: bool
    asks_for_final: bool


def read_infer(data: bytes) -> InferMessage:
    """Return the contents of a message; its tensors are views of the bytes.

    Raises:
        RefusedError: the bytes are not such a message, or it violates the protocol.
        RequestTooLargeError, QueueFullError: not enough memory for the parsed message.
    """
    rest, tensors = take_tensors(data)
    with charged(_PARSED * len(rest) if len(rest) > _SMALL else 0):
        message = parse(_REQUEST, rest)
        parameters = read_parameters(message.parameters)
        asks_for_final = parameters.pop(_ASKS_FOR_FINAL, False) is True
        document = {
            "id": message.id,
            "parameters": parameters,
            "inputs": list(_inputs(message, tensors)),
            "outputs": [
                {"name": each.name, "parameters": read_parameters(each.parameters)} for each in message.outputs
            ],
        }
        return InferMessage(
            model=message.model_name,
            version=message.model_version or None,
            request=read_request(document, memoryview(b"")),
            has_numbers=not tensors and any(each.HasField("contents") for each in message.inputs),
            asks_for_final=asks_for_final,
        )


def read_names(data: bytes) -> tuple[str, str]:
    """Return the model and the id of a refused message, empty if they cannot be read."""
    try:
        message = parse(_REQUEST, take_tensors(data)[0])
    except RefusedError:
        return "", ""
    return message.model_name, message.id


def _inputs(message: Any, tensors: Sequence[memoryview]) -> Iterator[dict[str, Any]]:
    rest = list(reversed(tensors))
    missing = 0
    for each in message.inputs:
        row: dict[str, Any] = {
            "name": each.name,
            "datatype": each.datatype,
            "shape": list(each.shape[:_RANK]),
            "parameters": read_parameters(each.parameters),
        }
        if tensors and each.HasField("contents"):
            raise RefusedError(
                f"contents field must not be specified when using raw_input_contents for input '{cut(each.name)}'"
            )
        if REGION not in row["parameters"]:
            missing += not rest
            row["data"] = (rest.pop() if rest else memoryview(b"")) if tensors else _packed(each)
        yield row
    if rest or (tensors and missing):
        raise RefusedError(
            f"expected {len(tensors) - len(rest) + missing} raw_input_contents, one for each input that is not in"
            f" shared memory, got {len(tensors)}"
        )


def _packed(tensor: Any) -> memoryview:
    """Return an input's numbers as raw bytes."""
    datatype = tensor.datatype
    name, dtype = _CONTENTS.get(datatype), dtype_of(datatype)
    where = f"input '{cut(tensor.name)}'"
    given = [descriptor.name for descriptor, _ in tensor.contents.ListFields()]
    if given not in ([], [name]):
        expected = f"only {name}" if name else "its bytes in raw_input_contents"
        raise RefusedError(f"{where}: found {', '.join(given)} for datatype '{cut(datatype)}', expected {expected}")
    if name is None:  # a datatype without numbers, or an unknown one, which is reported when the model is known
        return memoryview(b"")
    values = getattr(tensor.contents, name)
    if dtype is None:
        return _elements(values)
    charge(len(values) * dtype.itemsize)
    try:
        return np.fromiter(values, dtype.newbyteorder("<"), len(values)).view(np.uint8).data
    except OverflowError:
        raise RefusedError(f"{where}: found a value in {name} that is out of range, expected {datatype}") from None


def _elements(values: Sequence[bytes]) -> memoryview:
    charge(sum(map(len, values)) + _LISTED * len(values))
    return memoryview(b"".join(piece for value in values for piece in (struct.pack("<I", len(value)), value)))


def write_answer(
    message: InferMessage,
    plan: Plan,
    outputs: Mapping[str, NDArray[Any]],
    labels: Sequence[str] | None,
    served: tuple[str, int],
) -> list[Piece]:
    """Return the bytes of an answer, in pieces.

    Args:
        message: the request.
        plan: the outputs that it asks for.
        outputs: the results.
        labels: of the model's classes.
        served: name and version of the model that ran.

    Raises:
        InvalidRequestError: the protocol has no datatype for an output.
        RequestTooLargeError, QueueFullError: not enough memory for the answer.
    """
    answer = _RESPONSE(model_name=served[0], model_version=str(served[1]), id=plan.request.id or "")
    if message.asks_for_final:
        answer.parameters[_IS_FINAL].bool_param = True
    rows = list(encode_separately(plan, outputs, labels))
    for row, _ in rows:
        answer.outputs.add(name=row["name"], datatype=row["datatype"], shape=row["shape"])
    uses_regions = any(wanted.region_slice is not None for _, _, wanted in plan.rows)
    if message.has_numbers and not uses_regions and all(_has_numbers(row) for row, _ in rows):
        for tensor, (row, tail) in zip(answer.outputs, rows, strict=True):
            _set_numbers(tensor, row["datatype"], tail)
        return [answer.SerializeToString()]
    tails = [tail for _, tail in rows]
    charge(sum(map(len, tails)))  # they are copied once more when they are sent
    return [answer.SerializeToString(), *(piece for tail in tails for piece in field(_RAW_OUTPUTS, [tail]))]


def _has_numbers(row: Mapping[str, Any]) -> bool:
    return row["datatype"] in _CONTENTS and row["datatype"] != BYTES


def _set_numbers(tensor: Any, datatype: str, tail: Piece) -> None:
    dtype = dtype_of(datatype)
    assert dtype is not None  # only BYTES has none
    values = np.frombuffer(tail, dtype.newbyteorder("<"))
    charge(_LISTED * len(values))
    getattr(tensor.contents, _CONTENTS[datatype]).extend(values.tolist())
