"""POST /v2/models/{name}[/versions/{version}]/infer."""

from __future__ import annotations

import zlib
from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from app.errors import InvalidRequestError, RequestTooLargeError
from app.http.body import INLINE_BYTES, first_headers, read_body, until_disconnect
from app.http.deadline import read_limit
from app.http.responses import ChargedResponse
from app.http.routes.state import dataplane
from app.http.v2.metadata import asked
from app.memory.budget import Allowance, charge
from app.models.keeping.version import Version
from app.models.model import Model
from app.protocol.v2.outputs import Encoded, encode
from app.protocol.v2.request import HEADER_LENGTH, V2Request, parse_request, read_header_length
from app.protocol.v2.run import earlier, prepare
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
        encoded, packing = await _encoded(request, plane, version, model, allowance)
    headers = {} if packing is None else {"content-encoding": packing}
    if encoded.header_length is None:
        return ChargedResponse(encoded.pieces, allowance, "application/json", headers)
    headers[HEADER_LENGTH] = str(encoded.header_length)
    return ChargedResponse(encoded.pieces, allowance, "application/octet-stream", headers)


async def _encoded(
    request: Request, plane: DataPlane, version: Version, model: Model, allowance: Allowance
) -> tuple[Encoded, str | None]:
    """An answer, and what it is packed with."""
    deadline = plane.deadline(read_limit(request))
    limit, values_at = plane.settings.max_body_bytes, _values_at(request)
    body = await read_body(request, limit, deadline, allowance, tuple(_PACKED), values_at=values_at)
    said = await _said(request, plane, version, body, deadline)
    size = None if b"content-encoding" in first_headers(request) else len(body)
    plan, run = prepare(said, model, plane.settings, request.app.state.regions, size=size)
    trace = request.app.state.changing.trace
    packing = _packing(request)

    def write(answer: Answer) -> Encoded:
        trace.saw(answer.model, answer.version, said.id, answer.result.timing)
        encoded = encode(plan, answer.result.outputs, model.labels, answer.model, answer.version)
        return encoded if packing is None else _packed(encoded, packing)

    deadline = earlier(deadline, said)
    answer = plane.answer_now(version, run, write, deadline) if packing is None else None
    if answer is None:
        answer = await until_disconnect(request, plane.infer_version(version, run, write, deadline))
    return answer, packing


async def _said(request: Request, plane: DataPlane, version: Version, body: bytearray, deadline: float) -> V2Request:
    """What a body says; a long text is read in a thread."""
    head = first_headers(request)
    encoding = head.get(b"content-encoding", b"identity").decode("latin-1")
    given = head[_LENGTH].decode("latin-1") if _LENGTH in head else None
    work = partial(_parsed, body, encoding, given, plane.settings)
    is_short = encoding == "identity" and (read_header_length(given, len(body)) <= INLINE_BYTES)
    if is_short:
        return work()
    if encoding == "identity" and _PRIORITY not in body:  # who has one may pass by those that wait
        plane.admit(version, deadline)
    return await plane.offload(work, deadline)


def _values_at(request: Request) -> int:
    """Where tensors begin, if the client says so; whether that may be is found out once the body is there."""
    given = first_headers(request).get(_LENGTH, b"")
    return int(given) if given.isdigit() and len(given) < _MAX_DIGITS else 0


def _parsed(body: bytearray, encoding: str, given: str | None, settings: Settings) -> V2Request:
    if encoding in _PACKED:
        body = _unpacked(body, encoding, settings.max_body_bytes)
    if not body:
        raise InvalidRequestError("the body is empty")
    return parse_request(body, read_header_length(given, len(body)), settings)


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


def _packing(request: Request) -> str | None:
    """What an answer is packed with. Most clients say that they take anything; who names one kind alone means it."""
    packing = first_headers(request).get(b"accept-encoding", b"").decode("latin-1").strip().lower()
    return packing if packing in _PACKED else None


def _packed(encoded: Encoded, packing: str) -> Encoded:
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _PACKED[packing])
    pieces = [*(packer.compress(piece) for piece in encoded.pieces), packer.flush()]
    return Encoded(pieces=pieces, header_length=encoded.header_length)
