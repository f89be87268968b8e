"""Heads of requests that were parsed before, by their bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from starlette.datastructures import QueryParams

from app.access.decision import read_key
from app.errors import ServiceError
from app.http.body import INLINE_BYTES
from app.http.gate import Visit
from app.http.routes.infer import InferHead
from app.http.v2.infer import V2Head

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

END_OF_HEAD: Final = b"\r\n\r\n"
# So many, of so many bytes each.
_MAX_HEADS: Final = 256
_MAX_BYTES: Final = 2048
_MAX_DIGITS: Final = 5
# What belongs to one request only, and what is for others to answer.
_OTHERS: Final = frozenset(
    (b"x-request-id", b"traceparent", b"tracestate", b"expect", b"transfer-encoding", b"content-encoding", b"upgrade")
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Known:
    """A head, and what it says.

    Args:
        method, url: as its first line has them.
        headers: all of them, each of another name.
        head_bytes, body_bytes: how long both are.
        key: what it brings to be let in.
        said: what it says of the request, in the one protocol or the other.
    """

    method: bytes
    url: bytes
    headers: Headers
    head_bytes: int
    body_bytes: int
    key: bytes | None
    said: InferHead | V2Head


class Heads:
    """All that are known to a server."""

    def __init__(self, max_body_bytes: int) -> None:
        self._limit = min(INLINE_BYTES, max_body_bytes)
        self._known: dict[bytes, Known] = {}

    def find(self, data: bytes) -> Known | None:
        """The head that a piece begins with."""
        end = data.find(END_OF_HEAD, 0, _MAX_BYTES)
        return None if end < 0 else self._known.get(data[: end + len(END_OF_HEAD)])

    def learn(self, text: bytes, visit: Visit, method: bytes, url: bytes, headers: Headers) -> None:
        """Remember a head that is parsed, and good, and keeps its connection.

        Args:
            text: its bytes.
        """
        if len(text) > _MAX_BYTES or text in self._known:
            return
        head = dict(headers)
        length = head.get(b"content-length", b"")
        if len(head) != len(headers) or not _OTHERS.isdisjoint(head) or not _is_plain(text, len(headers)):
            return
        if not (length.isdigit() and len(length) <= _MAX_DIGITS and 0 < int(length) <= self._limit):
            return
        said = _read(visit, url, head)
        if said is None:
            return
        if len(self._known) >= _MAX_HEADS:
            self._known.clear()
        self._known[text] = Known(
            method=method,
            url=url,
            headers=tuple(headers),
            head_bytes=len(text),
            body_bytes=int(length),
            key=read_key(headers),
            said=said,
        )


def _read(visit: Visit, url: bytes, head: dict[bytes, bytes]) -> InferHead | V2Head | None:
    """What a head says; None where it is refused, or asks for what takes time."""
    query = url.decode("latin-1").partition("?")[2]
    try:
        if not visit.target.is_v2:
            name = visit.target.model if visit.target.is_named_by_path else None
            return InferHead.of(head, QueryParams(query) if query else {}, name)
        said = V2Head.of(head)
    except ServiceError:
        return None
    return said if said.packing is None else None


def _is_plain(text: bytes, headers: int) -> bool:
    """Whether the bytes of a head are its first line and so many others: where it ends, nobody can see differently."""
    ends = text.count(b"\r\n")
    return ends == headers + 2 and text.count(b"\n") == ends and text.count(b"\r") == ends
