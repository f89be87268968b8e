"""POST /v2/models/{name}[/versions/{version}]/infer."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Self

from starlette.requests import Request
from starlette.responses import Response

from app.codec.message import read_version
from app.errors import InvalidRequestError, RequestTooLargeError
from app.http.body import INLINE_BYTES, dataplane, encoding_of, first_headers, respond
from app.http.model_request import Reply, RequestFactory, WorkItem, read_limit
from app.keys import client_of, read_key
from app.memory.reservation import charge
from app.protocol.v2.inputs import prepare, request_deadline
from app.protocol.v2.operations import cache_ports, find
from app.protocol.v2.outputs import Encoded, encode
from app.protocol.v2.ports import has_wire_ports
from app.protocol.v2.request import HEADER_LENGTH, V2Request, parse_request, read_header_length
from app.protocol.v2.runtime_settings import TraceSettings
from app.protocol.v2.shared_memory import MemoryRegions
from app.serving.dataplane import Answer, DataPlane

_PACKED: Final = {"gzip": 31, "deflate": 15}  # zlib's window, and for gzip its header
_LEVEL: Final = 1
_MAX_DIGITS: Final = 18
# A body without this text has no priority.
_PRIORITY: Final = b"priority"
_LENGTH: Final = HEADER_LENGTH.encode()


async def infer(request: Request) -> Response:
    """Run a model."""
    named = request.path_params
    create = read_head(named["name"], named.get("version"), first_headers(request))
    return await respond(request, dataplane(request), create(request.app.state))


def read_head(
    name: str, number: str | None, headers: Mapping[bytes, bytes], query: Mapping[str, str] | None = None
) -> RequestFactory:
    """Read the head of a request; ``name`` and ``number`` are model and version in the path. The query is ignored.

    Raises:
        InvalidRequestError: an invalid time limit or version.
    """
    head = V2Head.of(headers, name, number)
    return lambda state: V2ModelRequest(state.dataplane, head, state.shared_memory, state.runtime_settings.trace)


@dataclass(frozen=True, slots=True, kw_only=True)
class V2Head:
    """Contents of the head of a V2 request.

    Args:
        name, number: model and version in the path.
        limit_s: how long the client waits.
        values_at: offset of the tensors in the body, as the client claims; checked when the body is there.
        given: the header with that offset.
        encoding: compression of the body.
        packing: compression of the answer, or None.
        key: API key, or None.
    """

    name: str
    number: int | str | None
    limit_s: float | None
    values_at: int
    given: str | None
    encoding: str
    packing: str | None
    key: bytes | None

    @classmethod
    def of(cls, headers: Mapping[bytes, bytes], name: str, number: str | None) -> Self:
        """Read the first header of each name.

        Raises:
            InvalidRequestError: an invalid time limit or version.
        """
        given = headers.get(_LENGTH)
        packing = headers.get(b"accept-encoding", b"").decode("latin-1").strip().lower()
        return cls(
            name=name,
            number=read_version(number),
            limit_s=read_limit(headers),
            values_at=int(given) if given is not None and given.isdigit() and len(given) < _MAX_DIGITS else 0,
            given=None if given is None else given.decode("latin-1"),
            encoding=encoding_of(headers),
            # Most clients accept anything by default; one that names a single kind wants it.
            packing=packing if packing in _PACKED else None,
            key=read_key(headers.items()),
        )


class V2ModelRequest:
    """A request of the protocol; see `ModelRequest`.

    Args:
        plane: the models.
        head: contents of the head.
        regions: shared-memory regions, or None.
        trace: settings that say which requests are logged.

    Raises:
        ServiceError: there is no such model, or it is not ready.
    """

    encodings: tuple[str, ...] = tuple(_PACKED)
    head_priority: int = 1

    def __init__(self, plane: DataPlane, head: V2Head, regions: MemoryRegions | None, trace: TraceSettings) -> None:
        self._plane, self._head, self._regions, self._trace = plane, head, regions, trace
        _, self.version, self._model = find(plane.store, head.name, head.number)
        self.deadline, self.values_at, self.encoding = plane.deadline(head.limit_s), head.values_at, head.encoding

    def is_short(self, body: bytearray) -> bool:
        """Return whether the JSON can be parsed on the event loop.

        Raises:
            InvalidRequestError: the claimed length of the JSON exceeds the body.
        """
        is_plain = self._head.encoding == "identity" and has_wire_ports(self._model)
        return is_plain and read_header_length(self._head.given, len(body)) <= INLINE_BYTES

    def work_item(self, body: bytearray) -> WorkItem:
        """Parse the body."""
        self._admit(body)
        return self._work_item(self._parse(body), len(body))

    async def work_item_in_thread(self, body: bytearray) -> WorkItem:
        """Parse the body in a thread, and find out there how the model takes batches, which may run it."""
        plane = self._plane
        if not has_wire_ports(self._model):
            await cache_ports(plane, self._model, self.deadline)
            if self.is_short(body):
                return self.work_item(body)
        self._admit(body)
        return self._work_item(await plane.offload(partial(self._parse, body), self.deadline), len(body))

    def _admit(self, body: bytearray) -> None:
        """Refuse the request before its body is parsed; with a priority it may overtake others."""
        is_plain = self._head.encoding == "identity"
        if is_plain and not self.version.scheduler.is_empty and body.find(_PRIORITY, 0, self.values_at or None) < 0:
            self._plane.admit(self.version, self.deadline)

    def _parse(self, body: bytearray) -> V2Request:
        if self._head.encoding in _PACKED:
            body = _unpacked(body, self._head.encoding, self._plane.settings.max_body_bytes)
        if not body:
            raise InvalidRequestError("the body is empty, expected JSON or a tensor")
        return parse_request(body, read_header_length(self._head.given, len(body)), self._plane.settings)

    def _work_item(self, request: V2Request, size: int) -> WorkItem:
        model, packing, trace = self._model, self._head.packing, self._trace
        known_size = size if self._head.encoding == "identity" else None
        client = client_of(self._head.key)
        plan, work = prepare(request, model, self._plane.settings, self._regions, client=client, size=known_size)
        if packing is not None:  # which takes time
            work = work._replace(is_light=False)

        def write(answer: Answer) -> Reply:
            trace.record(answer.model, answer.version, request.id, answer.result.timing)
            encoded = encode(plan, answer.result.outputs, model.labels, answer.model, answer.version)
            return _reply_of(encoded, packing)

        return WorkItem(self.version, work, write, request_deadline(self.deadline, request))


def _reply_of(encoded: Encoded, packing: str | None) -> Reply:
    headers = {}
    if packing is not None:
        encoded, headers = _packed(encoded, packing), {"content-encoding": packing}
    if encoded.header_length is None:
        return Reply(encoded.pieces, "application/json", headers)
    return Reply(encoded.pieces, "application/octet-stream", {**headers, HEADER_LENGTH: str(encoded.header_length)})


def _unpacked(body: bytearray, encoding: str, limit: int) -> bytearray:
    """Return a decompressed body, up to the limit."""
    unpacker = zlib.decompressobj(_PACKED[encoding])
    found, whole = bytearray(), memoryview(body)
    try:
        # Input and output in pieces: the unconsumed rest is copied each time, which would be quadratic for the whole.
        for start in range(0, len(whole), INLINE_BYTES):
            rest = bytes(whole[start : start + INLINE_BYTES])
            while rest and not unpacker.eof:
                piece = unpacker.decompress(rest, INLINE_BYTES)
                charge(len(piece))
                found += piece
                rest = unpacker.unconsumed_tail
                if len(found) > limit:
                    raise RequestTooLargeError(
                        f"the body is too large: found more than {limit} decompressed bytes, expected at most {limit}",
                        limit=limit,
                    )
    except zlib.error as exc:
        raise InvalidRequestError(f"the body is not {encoding}: {exc}") from None
    if not unpacker.eof:
        raise InvalidRequestError(f"the body is not {encoding}: it is truncated")
    return found


def _packed(encoded: Encoded, packing: str) -> Encoded:
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _PACKED[packing])
    pieces = [*(packer.compress(piece) for piece in encoded.pieces), packer.flush()]
    return Encoded(pieces=pieces, header_length=encoded.header_length)
