"""POST /v2/models/{name}[/versions/{version}]/infer."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Self

from starlette.requests import Request
from starlette.responses import Response

from app.errors import InvalidRequestError, RequestTooLargeError
from app.http.body import INLINE_BYTES, first_headers, read_body, until_disconnect
from app.http.deadline import read_limit
from app.http.order import Order, Reply
from app.http.responses import ChargedResponse
from app.http.routes.state import dataplane
from app.http.v2.metadata import asked
from app.memory.allowance import Allowance, charge
from app.models.keeping.version import Version
from app.models.model import Model
from app.protocol.v2.outputs import Encoded, encode
from app.protocol.v2.regions import Regions
from app.protocol.v2.request import HEADER_LENGTH, V2Request, parse_request, read_header_length
from app.protocol.v2.run import earlier, prepare
from app.protocol.v2.settings import TraceSettings
from app.serving.dataplane import Answer, DataPlane
from app.settings import Settings

_PACKED: Final = {"gzip": 31, "deflate": 15}  # zlib's window, and for gzip its header
_LEVEL: Final = 1
_MAX_DIGITS: Final = 18
_PRIORITY: Final = b"priority"
_LENGTH: Final = HEADER_LENGTH.encode()


async def infer(request: Request) -> Response:
    """Run a model."""
    plane = dataplane(request)
    _, version, model = await asked(request)
    with plane.memory.answering() as allowance:
        reply = await _reply(request, plane, version, model, allowance)
    return ChargedResponse(reply.pieces, allowance, reply.media_type, reply.headers)


async def _reply(request: Request, plane: DataPlane, version: Version, model: Model, allowance: Allowance) -> Reply:
    head, state = V2Head.of(first_headers(request)), request.app.state
    deadline = plane.deadline(head.limit_s)
    limit = plane.settings.max_body_bytes
    body = await read_body(request, limit, deadline, allowance, tuple(_PACKED), values_at=head.values_at)
    said = await read(plane, version, head, body, deadline)
    found = Found(version, model, state.regions, state.changing.trace)
    order = order_of(plane, head, said, found, len(body), deadline)
    reply = plane.answer_now(*order) if head.packing is None else None
    if reply is None:
        reply = await until_disconnect(request, plane.infer_version(*order))
    return reply


@dataclass(frozen=True, slots=True, kw_only=True)
class V2Head:
    """What the head of a request says of it.

    Args:
        limit_s: how long the client waits.
        values_at: where tensors begin, if the client says so; whether that may be is found out once the body is there.
        given: the same as it was said.
        encoding: what the body is packed with.
        packing: what the answer is to be packed with.
    """

    limit_s: float | None
    values_at: int
    given: str | None
    encoding: str
    packing: str | None

    @classmethod
    def of(cls, headers: Mapping[bytes, bytes]) -> Self:
        """Of the first header of each name.

        Raises:
            InvalidRequestError: no time is left, or none is said.
        """
        given = headers.get(_LENGTH)
        packing = headers.get(b"accept-encoding", b"").decode("latin-1").strip().lower()
        return cls(
            limit_s=read_limit(headers),
            values_at=int(given) if given is not None and given.isdigit() and len(given) < _MAX_DIGITS else 0,
            given=None if given is None else given.decode("latin-1"),
            encoding=headers.get(b"content-encoding", b"identity").decode("latin-1"),
            # Most clients say that they take anything; who names one kind alone means it.
            packing=packing if packing in _PACKED else None,
        )

    def is_short(self, size: int) -> bool:
        """Whether the text of a body of that size is read in no time.

        Raises:
            RefusedError: it cannot be in such a body.
        """
        return self.encoding == "identity" and read_header_length(self.given, size) <= INLINE_BYTES

    def parse(self, body: bytearray, settings: Settings) -> V2Request:
        """What a body says.

        Raises:
            ServiceError: it is none, or too large unpacked.
        """
        if self.encoding in _PACKED:
            body = _unpacked(body, self.encoding, settings.max_body_bytes)
        if not body:
            raise InvalidRequestError("the body is empty")
        return parse_request(body, read_header_length(self.given, len(body)), settings)


class Found(NamedTuple):
    """What a request is for, and what it may use."""

    version: Version
    model: Model
    regions: Regions | None
    trace: TraceSettings


def order_of(plane: DataPlane, head: V2Head, said: V2Request, found: Found, size: int, deadline: float) -> Order:
    """What is to be done for a request whose body is there.

    Args:
        size: of the body.

    Raises:
        RefusedError: an output that there is not, or not in this form.
    """
    version, model, regions, trace = found
    plan, work = prepare(said, model, plane.settings, regions, size=size if head.encoding == "identity" else None)

    def write(answer: Answer) -> Reply:
        trace.saw(answer.model, answer.version, said.id, answer.result.timing)
        encoded = encode(plan, answer.result.outputs, model.labels, answer.model, answer.version)
        return _reply_of(encoded, head.packing)

    return Order(version, work, write, earlier(deadline, said))


def _reply_of(encoded: Encoded, packing: str | None) -> Reply:
    headers = {}
    if packing is not None:
        encoded, headers = _packed(encoded, packing), {"content-encoding": packing}
    if encoded.header_length is None:
        return Reply(encoded.pieces, "application/json", headers)
    return Reply(encoded.pieces, "application/octet-stream", {**headers, HEADER_LENGTH: str(encoded.header_length)})


async def read(plane: DataPlane, version: Version, head: V2Head, body: bytearray, deadline: float) -> V2Request:
    """What a body says; a long text is read in a thread."""
    work = partial(head.parse, body, plane.settings)
    if head.is_short(len(body)):
        return work()
    if head.encoding == "identity" and _PRIORITY not in body:  # who has one may pass by those that wait
        plane.admit(version, deadline)
    return await plane.offload(work, deadline)


def _unpacked(body: bytearray, encoding: str, limit: int) -> bytearray:
    """A compressed body, as far as it may be long."""
    unpacker = zlib.decompressobj(_PACKED[encoding])
    found, whole = bytearray(), memoryview(body)
    try:
        # In pieces both ways: what is left of a piece is copied each time, and of the whole that would be quadratic.
        for start in range(0, len(whole), INLINE_BYTES):
            rest = bytes(whole[start : start + INLINE_BYTES])
            while rest and not unpacker.eof:
                piece = unpacker.decompress(rest, INLINE_BYTES)
                charge(len(piece))
                found += piece
                rest = unpacker.unconsumed_tail
                if len(found) > limit:
                    raise RequestTooLargeError(
                        f"the body is too large: found more than {limit} bytes unpacked, expected at most {limit}",
                        limit=limit,
                    )
    except zlib.error as exc:
        raise InvalidRequestError(f"the body is not {encoding}: {exc}") from None
    if not unpacker.eof:
        raise InvalidRequestError(f"the body is not {encoding}: it ends early")
    return found


def _packed(encoded: Encoded, packing: str) -> Encoded:
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _PACKED[packing])
    pieces = [*(packer.compress(piece) for piece in encoded.pieces), packer.flush()]
    return Encoded(pieces=pieces, header_length=encoded.header_length)
