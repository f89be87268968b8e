"""Tensors of a request, checked against the model's inputs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from app.arrays import dtype_name, from_bytes, is_text
from app.codec.json_lists import LongList
from app.codec.json_tensors import advise, decode_input, filled
from app.errors import RefusedError, RequestTooLargeError
from app.images.decode import Picture
from app.images.headers import format_of
from app.memory.reservation import charge, check
from app.messages import cut, quoted
from app.models.request import LIGHT_BYTES, PLAIN_BYTES, InferRequest
from app.models.sequences import SequenceStep
from app.models.servable import Servable
from app.protocol.v2.outputs import Plan, plan_outputs
from app.protocol.v2.ports import BYTES, DYNAMIC, NAMES, WirePort, WirePorts, dtype_of, wire_ports
from app.protocol.v2.request import RequestedOutput, RequestInput, V2Request, read_count, read_sequence
from app.protocol.v2.shared_memory import DISABLED, MemoryRegions, RegionSlice
from app.scheduling.job import DEFAULT_PRIORITY
from app.settings import Settings
from app.signature import Input, Inputs, Signature
from app.sound.decode import format_of as sound_format_of
from app.sound.sound import MAX_SOUNDS, Sound, Sounds

_LENGTH: Final = 4
# Bytes of a view of an element in a list, and how many elements are made between two checks for
# cancellation.
_VIEW: Final = 192
_STRETCH: Final = 4096


class Decoder:
    """Decoder of the inputs of one model.

    Args:
        model: its name, for messages.
        ports: its inputs as the protocol describes them.
        signature: its inputs.
        settings: limits.
        regions: shared-memory regions, or None.
    """

    def __init__(
        self,
        model: str,
        ports: WirePorts,
        signature: Signature,
        settings: Settings,
        regions: MemoryRegions | None = None,
    ) -> None:
        self._model = model
        self._ports = ports
        self._signature = signature
        self._settings = settings
        self._regions = regions

    def decode(self, request: V2Request) -> Inputs:
        """Return the inputs by name.

        Raises:
            RefusedError: an input does not fit; names it, what was found and what was expected.
            ServiceError: an image or a JSON tensor is invalid.
        """
        if request.inputs is None:
            return self._raw(request.tail)
        return self._decode(request.inputs, request.tail)

    def _decode(self, sent: Sequence[RequestInput], tail: memoryview) -> Inputs:
        ports = self._matched(sent)
        inputs: Inputs = {}
        start = 0
        for item, port in zip(sent, ports, strict=True):
            self._check(item, port)
            if isinstance(item.data, memoryview):
                inputs[port.name] = self._from_bytes(item, port, item.data)
            elif item.region_slice is not None:
                inputs[port.name] = self._from_memory(item, item.region_slice, port)
            elif item.size is None:
                inputs[port.name] = self._from_json(item, port)
                advise(self._model, inputs[port.name])
            else:
                inputs[port.name] = self._from_bytes(item, port, tail[start : start + item.size])
                start += item.size
        if start < len(tail):
            raise RefusedError(
                f"unexpected additional input data for model '{self._model}': found {len(tail)} bytes after the JSON,"
                f" expected {start}"
            )
        return inputs

    def _matched(self, sent: Sequence[RequestInput]) -> list[WirePort]:
        """Return the port of each input; check that all are given once."""
        found: dict[str, WirePort] = {}
        for item in sent:
            port = self._ports.input(item.name)
            if port is None:
                raise RefusedError(
                    f"unexpected inference input '{cut(item.name)}' for model '{self._model}': expected"
                    f" {quoted(each.name for each in self._ports.inputs)}"
                )
            if port.name in found:
                raise RefusedError(f"input '{port.name}' is given twice for model '{self._model}', expected once")
            found[port.name] = port
        missing = [port.name for port in self._ports.inputs if port.name not in found]
        pairs = zip(sent, found, strict=True)
        if any(item.datatype == BYTES and name == self._signature.takes("sound") for item, name in pairs):
            missing = []  # a sound becomes all inputs
        if missing:
            raise RefusedError(
                f"expected {len(self._ports.inputs)} inputs but got {len(sent)} inputs for model '{self._model}'. Got"
                f" input(s) [{quoted(item.name for item in sent)}], but missing required input(s) [{quoted(missing)}]."
                " Please provide all required input(s)."
            )
        return list(found.values())

    def _check(self, item: RequestInput, port: WirePort) -> None:
        if item.datatype not in NAMES:
            raise RefusedError(
                f"input '{cut(item.name)}': unknown datatype '{cut(item.datatype)}', expected one of {', '.join(NAMES)}"
            )
        if item.datatype == BYTES and self._kind(port) is not None:
            self._check_count(math.prod(item.shape), port)
            return
        if port.port.spec is not None and item.datatype != port.datatype:
            raise RefusedError(
                f"inference input '{port.name}' data-type is '{item.datatype}', but model '{self._model}' expects"
                f" '{port.datatype}'"
            )
        if port.shape is not None and not _fits(item.shape, port.shape):
            raise RefusedError(
                f"unexpected shape for input '{port.name}' for model '{self._model}'. Expected {list(port.shape)}, got"
                f" {list(item.shape)}.{_hint(item.shape, port.shape)}"
            )
        elements = math.prod(size for size in item.shape if size)
        if elements > self._settings.max_elements:
            raise RequestTooLargeError(
                f"input '{port.name}' has too many elements: found {elements}, expected at most"
                f" {self._settings.max_elements}"
            )

    def _check_count(self, count: int, port: WirePort) -> None:
        """Check the number of pictures or sounds before an object is made of each."""
        kind = self._kind(port)
        most = MAX_SOUNDS if kind == "sound" else self._settings.max_images
        if count > most:
            raise RequestTooLargeError(f"too many {kind}s: found {count}, expected at most {most}")

    def _kind(self, port: WirePort) -> str | None:
        """Return the contents that an input takes as bytes: picture or sound; None if it takes tensors only."""
        kind = self._signature.contents.get(port.name)
        return None if kind == "text" else kind

    def _from_json(self, item: RequestInput, port: WirePort) -> Input:
        if item.datatype == BYTES and _is_text(port):
            _check_filled(item.data, item.shape, port)
            return filled(item.data, item.shape, port.port, port.port.spec.dtype)  # type: ignore[union-attr]
        if item.datatype == BYTES:
            raise RefusedError(
                f"input '{port.name}': found a {self._kind(port)} in the JSON, expected its bytes after the JSON"
            )
        spec = dtype_of(item.datatype)
        assert spec is not None  # only BYTES has none
        if type(item.data) is list and port.port.spec is not None:  # the usual case; the dtype was checked above
            _check_filled(item.data, item.shape, port)
            return filled(item.data, item.shape, port.port, port.port.spec.dtype)
        key = "b64" if isinstance(item.data, dict) and set(item.data) == {"b64"} else "data"
        data = item.data["b64"] if key == "b64" else item.data
        _check_filled(data, item.shape, port)
        tensor = {"shape": list(item.shape), "dtype": dtype_name(spec), key: data}
        return decode_input(tensor, port.port, self._signature, self._settings)

    def _from_memory(self, item: RequestInput, region_slice: RegionSlice, port: WirePort) -> Input:
        where = f"input '{port.name}'"
        if self._regions is None:
            raise RefusedError(f"{where}: {DISABLED}")
        self._regions.check(region_slice, where)
        dtype = dtype_of(item.datatype)
        if dtype is not None and (needed := math.prod(item.shape) * dtype.itemsize) != region_slice.size:
            raise RefusedError(
                f"unexpected size for {where}: found shared_memory_byte_size {region_slice.size}, expected {needed} for"
                f" shape {list(item.shape)} of {item.datatype}"
            )
        return self._from_bytes(item, port, self._regions.read(region_slice, where))

    def _from_bytes(self, item: RequestInput, port: WirePort, data: memoryview) -> Input:
        if item.datatype == BYTES and _is_text(port):
            return from_bytes(elements_of(data, port.name, math.prod(item.shape)), item.shape, port.name)
        if item.datatype == BYTES:
            return self._contents(port, elements_of(data, port.name, math.prod(item.shape)))
        dtype = dtype_of(item.datatype)
        assert dtype is not None  # only BYTES has none
        count = math.prod(item.shape)
        announced = len(data) if item.size is None else item.size
        if announced != count * dtype.itemsize or len(data) != announced:
            raise RefusedError(
                f"unexpected size for input '{port.name}', expecting {count * dtype.itemsize} bytes, got {len(data)}"
                f" (shape {list(item.shape)}, binary_data_size {announced})"
            )
        return _tensor(data, dtype, item.shape)

    def _raw(self, body: memoryview) -> Inputs:
        """Return the only tensor, image or sound of a body without JSON."""
        if len(self._ports.inputs) != 1:
            raise RefusedError(
                f"found a raw body, which is one tensor, expected JSON: model '{self._model}' has"
                f" {len(self._ports.inputs)} inputs"
            )
        (port,) = self._ports.inputs
        find_format = _FORMATS.get(self._kind(port))
        if find_format is not None and find_format(bytes(body[:12])) is not None:
            return {port.name: self._contents(port, [body])}
        dtype = dtype_of(port.datatype)
        if port.shape is None or dtype is None:
            raise RefusedError(f"found a raw body, expected JSON: the shape of input '{port.name}' is unknown")
        return {port.name: _tensor(body, dtype, self._raw_shape(port, port.shape, len(body) / dtype.itemsize))}

    def _raw_shape(self, port: WirePort, shape: tuple[int, ...], values: float) -> tuple[int, ...]:
        """Return the shape of one item of a batch; one dynamic size follows from the number of values."""
        sizes = [1, *shape[1:]] if port.is_batched else [*shape]
        if sizes.count(DYNAMIC) > 1:
            raise RefusedError(
                f"found a raw body, expected JSON: input '{port.name}' has several dynamic sizes: {list(shape)}"
            )
        rest = math.prod(size for size in sizes if size != DYNAMIC)
        found = tuple(int(values // rest) if size == DYNAMIC and rest else max(size, 0) for size in sizes)
        if math.prod(found) != values:
            raise RefusedError(
                f"unexpected size for input '{port.name}': found {values:g} values of {port.datatype}, expected"
                f" {list(shape)}"
            )
        return found

    def _contents(self, port: WirePort, elements: Sequence[memoryview]) -> Input:
        """Return encoded pictures or sounds as the value of an input."""
        kind = self._kind(port) or "picture"
        labels = [f"the {kind}"] if len(elements) == 1 else [f"{kind} {index + 1}" for index in range(len(elements))]
        pairs = list(zip(elements, labels, strict=True))
        if kind == "sound":
            return Sounds(tuple(Sound(data, label) for data, label in pairs))
        self._signature.content_port("picture", port.name)
        return tuple(Picture(data=data, label=label) for data, label in pairs)


# Format of contents by their first bytes.
_FORMATS: Final[dict[str | None, Callable[[bytes], str | None]]] = {"picture": format_of, "sound": sound_format_of}


def _is_text(port: WirePort) -> bool:
    return port.port.spec is not None and is_text(port.port.spec.dtype)


def _fits(found: Sequence[int], expected: Sequence[int]) -> bool:
    return len(found) == len(expected) and all(
        want in (DYNAMIC, size) for size, want in zip(found, expected, strict=True)
    )


def _hint(found: tuple[int, ...], expected: tuple[int, ...]) -> str:
    """Return a hint at a likely mistake in the shape, or an empty text."""
    if _fits((1, *found), expected):
        return f" The batch dimension is missing: send {[1, *found]}."
    if len(found) == len(expected) + 1 and _fits(found[1:], expected):
        return f" There is one dimension too many: send {list(found[1:])}."
    if len(found) == len(expected) == 4:
        n, a, b, c = found
        if _fits((n, c, a, b), expected):
            return " This looks like NHWC, expected NCHW."
        if _fits((n, b, c, a), expected):
            return " This looks like NCHW, expected NHWC."
    if len(found) > 1 and _fits((*found[:-2], found[-1], found[-2]), expected):
        return " The last two dimensions are swapped."
    return ""


def _check_filled(data: Any, shape: Sequence[int], port: WirePort) -> None:
    """Check the number of values in a flat list; the decoder checks nested ones."""
    found = None
    if isinstance(data, LongList):
        found = data.flat_size
    elif isinstance(data, list) and not (data and isinstance(data[0], list)):
        found = len(data)
    if found is not None and found != math.prod(shape):
        raise RefusedError(
            f"input '{port.name}': Shape does not match true shape of 'data' field: found {found} values, expected"
            f" {math.prod(shape)} for shape {list(shape)}"
        )


def _tensor(data: memoryview, dtype: np.dtype[Any], shape: Sequence[int]) -> NDArray[Any]:
    """Return bytes as an array; unaligned values, another byte order and booleans are copied."""
    if dtype == np.bool_:
        charge(len(data))
        return np.not_equal(np.frombuffer(data, np.uint8).reshape(shape), 0)
    array = np.frombuffer(data, dtype.newbyteorder("<")).reshape(shape)
    if array.flags.aligned and array.dtype.isnative:
        return array
    charge(array.nbytes)
    return array.astype(dtype, order="C", copy=True)


def elements_of(data: memoryview, name: str, count: int) -> list[memoryview]:
    """Return the elements of a BYTES tensor, each preceded by its length in four bytes.

    Raises:
        RefusedError: their number differs from count, or they do not fill the bytes.
        RequestTooLargeError, QueueFullError: not enough memory for so many objects.
        DeadlineExceededError: the request was cancelled.
    """
    wrong = f"input '{name}': found {len(data)} bytes, expected {count} elements, each after its length in four bytes"
    if _LENGTH * count > len(data):
        raise RefusedError(wrong)
    charge(_VIEW * count)
    found: list[memoryview] = []
    at = 0
    while at < len(data):
        if not len(found) % _STRETCH:
            check()
        end = at + _LENGTH + int.from_bytes(data[at : at + _LENGTH], "little")
        if at + _LENGTH > len(data) or end > len(data) or len(found) == count:
            break
        found.append(data[at + _LENGTH : end])
        at = end
    if at != len(data) or len(found) != count:
        raise RefusedError(wrong)
    return found


def prepare(
    request: V2Request,
    model: Servable,
    settings: Settings,
    regions: MemoryRegions | None = None,
    *,
    client: bytes = b"",
    size: int | None = None,
) -> tuple[Plan, InferRequest]:
    """Return the outputs of the answer, and the run that computes them.

    Args:
        request: the parsed request.
        model: the model that runs.
        settings: limits.
        regions: shared-memory regions, or None.
        client: identifies the client's key; sequences of different clients never meet.
        size: bytes of the request; None if they do not matter.

    Raises:
        RefusedError: an output does not exist, or not in the requested form; or the sequence is not named correctly.
    """
    ports = wire_ports(model)
    plan = plan_outputs(request, ports, model.name, regions)
    decoder = Decoder(model.name, ports, model.signature, settings, regions)
    return plan, InferRequest(
        decode=lambda _: decoder.decode(request),
        outputs=plan.names,
        predict=False,
        parameters={},
        is_light=size is not None and size <= _light_bytes(request),
        is_binary=all(_is_binary(request, wanted) for _, _, wanted in plan.rows),
        priority=read_count(request.parameters, "priority") or DEFAULT_PRIORITY,
        sequence=None if model.sequences is None else _sequence(request, client, settings),
    )


def _sequence(request: V2Request, client: bytes, settings: Settings) -> SequenceStep | None:
    """Return the place of a request in its sequence, or None.

    Raises:
        RefusedError: a parameter is malformed, or several workers serve, which do not share states.
    """
    step = read_sequence(request.parameters, client)
    if step is not None and settings.workers > 1:
        raise RefusedError(
            f"sequence_id: found with {settings.workers} workers, expected a server with one worker, because requests"
            " may reach any of them"
        )
    return step


def _light_bytes(request: V2Request) -> int:
    """Return up to how many bytes a request's tensors are decoded on the event loop; 0 with shared memory."""
    inputs = request.inputs or ()
    if any(each.region_slice is not None for each in inputs) or any(
        each.region_slice is not None for each in request.outputs or ()
    ):
        return 0
    is_plain = all(each.size is not None or isinstance(each.data, memoryview) for each in inputs)
    return PLAIN_BYTES if is_plain else LIGHT_BYTES


def _is_binary(request: V2Request, wanted: RequestedOutput) -> bool:
    is_asked = request.is_binary if wanted.binary is None else wanted.binary
    return is_asked and wanted.classes is None


def request_deadline(deadline: float, request: V2Request) -> float:
    """Return the request's own ``timeout`` (microseconds) as a deadline if that is sooner.

    Raises:
        RefusedError: it is not a whole number.
    """
    timeout = read_count(request.parameters, "timeout")
    return min(deadline, time.monotonic() + timeout / 1e6) if timeout else deadline
