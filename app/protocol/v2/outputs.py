"""Encoding of results as an answer: JSON, followed by the tensors that are requested as bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from app.arrays import as_bytes, is_text
from app.codec.answers import ChunkedArray, dump_json, dump_pieces
from app.codec.numpy_files import portable
from app.errors import InvalidRequestError, RefusedError
from app.memory.reservation import charge, check
from app.messages import brief, cut, quoted
from app.protocol.v2.ports import BYTES, Row, WirePort, WirePorts, datatype_of
from app.protocol.v2.request import RequestedOutput, V2Request
from app.protocol.v2.shared_memory import DISABLED, MemoryRegions

# Bytes of a value in JSON.
_TEXT: Final = 24
# The JSON is padded to a multiple of it, so that a client can view the first tensor without a copy.
_ALIGNED: Final = 64
# Larger arrays are written in pieces.
_CHUNK_VALUES: Final = 1 << 15
_MAX_CLASSES: Final = 1_000_000
# Bytes of a class in Python objects, without its text; and copies of the text until the answer is sent.
_CLASS: Final = 160
_COPIES: Final = 3
_HALVES: Final = ("FP16", "BF16")
_NON_FINITE: Final = ("error", "null", "token")

Array = NDArray[Any]


class Plan(NamedTuple):
    """Outputs of an answer, chosen before the model runs.

    Args:
        request: the request.
        rows: each output with its name in the answer, and how it is requested.
        non_finite: how NaN and infinities are written in JSON.
        regions: shared-memory regions, or None.
    """

    request: V2Request
    rows: tuple[Row, ...]
    non_finite: str
    regions: MemoryRegions | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Return the graph's names of the outputs."""
        return tuple([port.name for port, _, _ in self.rows])


class Encoded(NamedTuple):
    """Body of an answer; header_length is the length of its JSON, None if all of it is JSON."""

    pieces: list[bytes]
    header_length: int | None


def plan_outputs(request: V2Request, ports: WirePorts, model: str, regions: MemoryRegions | None = None) -> Plan:
    """Return the requested outputs, checked against the model.

    Raises:
        RefusedError: an output does not exist, or not in the requested form.
    """
    non_finite = request.parameters.get("non_finite", "error")
    if non_finite not in _NON_FINITE:
        raise RefusedError(f"Unable to parse 'non_finite': found {brief(non_finite)}, expected one of {_NON_FINITE}")
    if request.outputs is None:
        return Plan(request=request, rows=ports.every_output, non_finite=non_finite)
    rows: dict[str, Row] = {}
    for wanted in request.outputs:
        port = _port(wanted, ports, model)
        if port.name in rows:
            raise RefusedError(f"output '{port.name}' is requested twice of model '{model}', expected once")
        _check_region(wanted, regions)
        rows[port.name] = port, wanted.name, wanted
    return Plan(request=request, rows=tuple(rows.values()), non_finite=non_finite, regions=regions)


def _port(wanted: RequestedOutput, ports: WirePorts, model: str) -> WirePort:
    port = ports.output(wanted.name)
    if port is None:
        raise RefusedError(
            f"unexpected inference output '{cut(wanted.name)}' for model '{model}': expected"
            f" {quoted(each.name for each in ports.outputs)}"
        )
    if wanted.classes is not None and port.datatype in (*_HALVES, BYTES):
        raise RefusedError(f"output '{port.name}': found classification, which is not supported for {port.datatype}")
    return port


def _check_region(wanted: RequestedOutput, regions: MemoryRegions | None) -> None:
    """Refuse an output for shared memory that could not be written after the run."""
    if wanted.region_slice is None:
        return
    where = f"output '{cut(wanted.name)}'"
    if regions is None:
        raise RefusedError(f"{where}: {DISABLED}")
    if wanted.classes is not None:
        raise RefusedError(f"{where}: found classification with a shared-memory region, expected only one of them")
    regions.check(wanted.region_slice, where)


def encode(plan: Plan, outputs: Mapping[str, Array], labels: Sequence[str] | None, model: str, version: int) -> Encoded:
    """Return an answer.

    Raises:
        InvalidRequestError: JSON cannot represent a value, or the protocol has no datatype for an output.
        RequestTooLargeError, QueueFullError: not enough memory for the text.
    """
    rows, tails = [], []
    for port, name, wanted in plan.rows:
        value = _value(port, wanted, outputs, labels)
        is_binary = plan.request.is_binary if wanted.binary is None else wanted.binary
        row, tail = _row(name, value, is_binary or wanted.region_slice is not None, plan.non_finite)
        if wanted.region_slice is not None and plan.regions is not None:
            plan.regions.write(wanted.region_slice, tail, f"output '{name}'")
            del row["parameters"]  # clients take any parameters as a sign that bytes follow
            tail = None
        rows.append(row)
        tails += [] if tail is None else [tail]
    head: dict[str, Any] = {} if plan.request.id is None else {"id": plan.request.id}
    head |= {"model_name": model, "model_version": str(version), "outputs": rows}
    is_large = any(isinstance(row.get("data"), ChunkedArray) for row in rows)
    pieces = dump_pieces(head) if is_large else [dump_json(head)]
    if not tails:
        return Encoded(pieces=pieces, header_length=None)
    length = sum(map(len, pieces))
    blanks = -length % _ALIGNED
    return Encoded(pieces=[*pieces, b" " * blanks, *tails], header_length=length + blanks)


def encode_separately(
    plan: Plan, outputs: Mapping[str, Array], labels: Sequence[str] | None
) -> Iterator[tuple[dict[str, Any], bytes | memoryview]]:
    """Yield each output's entry and its bytes; no bytes for outputs in shared memory.

    Raises:
        InvalidRequestError: the protocol has no datatype for an output.
    """
    for port, name, wanted in plan.rows:
        row, tail = _row(name, _value(port, wanted, outputs, labels), True, plan.non_finite)
        if wanted.region_slice is not None and plan.regions is not None:
            plan.regions.write(wanted.region_slice, tail, f"output '{name}'")
            tail = b""
        yield row, tail


def _value(port: WirePort, wanted: RequestedOutput, outputs: Mapping[str, Array], labels: Sequence[str] | None) -> Any:
    value = outputs[port.name]
    return value if wanted.classes is None else _classes(value, wanted.classes, port.is_batched, labels)


def _row(name: str, value: Any, is_binary: bool, non_finite: str) -> tuple[dict[str, Any], Any]:
    """Return an output's entry, and its bytes if it is sent as bytes."""
    row: dict[str, Any] = {"name": name}
    if isinstance(value, _Texts):
        row |= {"datatype": BYTES, "shape": list(value.shape)}
        if not is_binary:
            row["data"] = [text.decode(errors="replace") for text in value.texts]
            return row, None
        return _with_tail(row, b"".join(len(text).to_bytes(4, "little") + text for text in value.texts))
    if is_text(value.dtype):
        return _row(name, _Texts(as_bytes(value), value.shape), is_binary, non_finite)
    datatype = datatype_of(value.dtype)
    if datatype is None:
        raise InvalidRequestError(
            f"output '{name}': found {value.dtype.name}, for which the protocol has no datatype; use POST /infer"
        )
    row |= {"datatype": datatype, "shape": list(value.shape)}
    if not is_binary:
        row["data"] = _numbers(name, value, non_finite)
        return row, None
    return _with_tail(row, _bytes(value))


def _with_tail(row: dict[str, Any], tail: Any) -> tuple[dict[str, Any], Any]:
    row["parameters"] = {"binary_data_size": len(tail)}
    return row, tail


def _bytes(array: Array) -> memoryview | bytes:
    """Return little-endian values in row-major order, without a copy if the array is contiguous."""
    if not array.flags.c_contiguous or not array.size or not array.ndim:
        charge(array.nbytes)
        return array.tobytes()
    return array.reshape(-1).view(np.uint8).data


def _numbers(name: str, array: Array, non_finite: str) -> Any:
    charge(_TEXT * array.size)
    flat = portable(array).ravel()
    if flat.dtype == np.float16:
        flat = flat.astype(np.float32)
    if flat.dtype.kind == "f" and not np.isfinite(flat).all():
        return _non_finite(name, flat, non_finite)
    return ChunkedArray(flat) if flat.size > _CHUNK_VALUES else flat


def _non_finite(name: str, flat: Array, non_finite: str) -> Any:
    if non_finite == "error":
        count = int(flat.size - np.isfinite(flat).sum())
        raise InvalidRequestError(
            f"output '{name}': found {count} non-finite values, which JSON cannot represent: request binary_data,"
            ' or send the parameter "non_finite": "null" or "token"'
        )
    if non_finite == "null":
        return [value if value - value == 0 else None for value in flat.tolist()]
    return orjson.Fragment(json.dumps(flat.tolist()).encode())


@dataclass(frozen=True, slots=True)
class _Texts:
    """BYTES tensor."""

    texts: list[bytes]
    shape: tuple[int, ...]


def _classes(array: Array, count: int, is_batched: bool, labels: Sequence[str] | None) -> _Texts:
    """Return ``value:index:label`` of each item's largest values, best first, ties by lower index."""
    items = array.reshape(len(array), -1) if is_batched and array.ndim else array.reshape(1, -1)
    count = min(count, items.shape[1], _MAX_CLASSES)
    charge(_CLASS * len(items) * count)
    texts: list[bytes] = []
    for item in items:
        check()
        found = [_class(item[index], int(index), labels) for index in _best(item, count)]
        charge(_COPIES * sum(map(len, found)))
        texts += found
    return _Texts(texts, (len(items), count) if is_batched and array.ndim else (count,))


def _best(item: Array, count: int) -> Array:
    """Return the indices of the largest values, best first; NaN counts as the smallest."""
    if item.dtype.kind == "f":
        item = np.where(np.isnan(item), -np.inf, item)
    least = np.partition(item, -count)[-count] if count else item.max(initial=0)
    candidates = np.flatnonzero(item >= least)[::-1]
    # A stable sort of the reversed order, read backwards, puts the lower index of equal values first.
    return candidates[np.argsort(item[candidates], kind="stable")[::-1]][:count]


def _class(value: Any, index: int, labels: Sequence[str] | None) -> bytes:
    text = f"{value:f}" if isinstance(value, np.floating) else str(int(value))
    label = labels[index] if labels is not None and index < len(labels) else ""
    return (f"{text}:{index}:{label}" if label else f"{text}:{index}").encode()
