"""The bytes of a ModelInferRequest -> what it says; results -> the bytes of a ModelInferResponse.

A request's tensors are bytes beside it (``raw_input_contents``) or numbers in it (``contents``), all of them the one or
all of them the other; its answer has them the same way, where there are numbers of that kind.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from app.errors import RefusedError
from app.memory.reservation import charge, charged
from app.messages import cut
from app.protocol.grpc.schema import message_class, parse, read_parameters
from app.protocol.grpc.wire import Piece, field, take_tensors
from app.protocol.v2.outputs import Plan, encode_separately
from app.protocol.v2.ports import BYTES, dtype_of
from app.protocol.v2.request import V2Request, read_request
from app.protocol.v2.shared_memory import REGION

_REQUEST: Final = message_class("ModelInferRequest")
_RESPONSE: Final = message_class("ModelInferResponse")
# Which of its fields has the numbers of a datatype. FP16 and BF16 have none.
_CONTENTS: Final = {
    "BOOL": "bool_contents",
    "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents", "UINT64": "uint64_contents",
    "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents", "INT64": "int64_contents",
    "FP32": "fp32_contents", "FP64": "fp64_contents", BYTES: "bytes_contents",
}  # fmt: skip
_RAW_OUTPUTS: Final = 6
# What is parsed takes up to so many times its bytes: a small number is one byte, and eight in memory.
_PARSED: Final = 10
_SMALL: Final = 1 << 16
# Longer shapes are refused; how they end is not looked at.
_RANK: Final = 64
# Bytes of a number as an object, in a list.
_LISTED: Final = 40
# Parameters with names of Triton's own, which are between a client and what carries its messages.
_ASKS_FOR_FINAL: Final = "triton_enable_empty_final_response"
_IS_FINAL: Final = "triton_final_response"


@dataclass(frozen=True, slots=True, kw_only=True)
class InferMessage:
    """What a ModelInferRequest says.

    Args:
        model: its name.
        version: None for the newest.
        has_numbers: whether its tensors came as numbers.
        asks_for_final: whether its client wants to be told that an answer is the last one.
    """

    model: str
    version: str | None
    request: V2Request
    has_numbers: bool
    asks_for_final: bool


def read_infer(data: bytes) -> InferMessage:
    """What a message's bytes say; its tensors stay views of them.

    Raises:
        RefusedError: they are no such message, or say something that the protocol does not take.
        RequestTooLargeError, QueueFullError: not enough memory for what they become.
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
    """The model and the id of a message that was refused, as far as it can be read."""
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
    """An input's numbers as the bytes they would have been sent as."""
    datatype = tensor.datatype
    name, dtype = _CONTENTS.get(datatype), dtype_of(datatype)
    where = f"input '{cut(tensor.name)}'"
    given = [descriptor.name for descriptor, _ in tensor.contents.ListFields()]
    if given not in ([], [name]):
        expected = f"only {name}" if name else "its bytes in raw_input_contents"
        raise RefusedError(f"{where}: found {', '.join(given)} for datatype '{cut(datatype)}', expected {expected}")
    if name is None:  # of a datatype that has no numbers here, or is none: who knows the model says so
        return memoryview(b"")
    values = getattr(tensor.contents, name)
    if dtype is None:
        return _elements(values)
    charge(len(values) * dtype.itemsize)
    try:
        return np.fromiter(values, dtype.newbyteorder("<"), len(values)).view(np.uint8).data
    except OverflowError:
        raise RefusedError(f"{where}: a value of {name} is none of {datatype}") from None


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
    """The bytes of an answer, in pieces.

    Args:
        served: the name and the version of the model that made it.

    Raises:
        InvalidRequestError: a dtype that the protocol has no word for.
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
    charge(sum(map(len, tails)))  # they are joined where they are sent
    return [answer.SerializeToString(), *(piece for tail in tails for piece in field(_RAW_OUTPUTS, [tail]))]


def _has_numbers(row: Mapping[str, Any]) -> bool:
    return row["datatype"] in _CONTENTS and row["datatype"] != BYTES


def _set_numbers(tensor: Any, datatype: str, tail: Piece) -> None:
    dtype = dtype_of(datatype)
    assert dtype is not None  # only BYTES has none
    values = np.frombuffer(tail, dtype.newbyteorder("<"))
    charge(_LISTED * len(values))
    getattr(tensor.contents, _CONTENTS[datatype]).extend(values.tolist())
