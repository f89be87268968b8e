"""Heads of requests that were parsed before, by their bytes; only the length of their bodies may be another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeAlias

from starlette.datastructures import QueryParams

from app.access.decision import read_key
from app.errors import ServiceError
from app.http.refusing.visits import Visit
from app.http.routes.infer import InferHead
from app.http.v2.infer import V2Head

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

END_OF_HEAD: Final = b"\r\n\r\n"
# So many, of so many bytes each.
_MAX_HEADS: Final = 256
_MAX_BYTES: Final = 2048
_LENGTH: Final = b"\r\ncontent-length: "
_MAX_DIGITS: Final = 18
# What belongs to one request only, and what is for others to answer.
_OTHERS: Final = frozenset(
    (b"x-request-id", b"traceparent", b"tracestate", b"expect", b"transfer-encoding", b"content-encoding", b"upgrade")
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class KnownHead:
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
        self._limit = max_body_bytes
        # Those that were parsed, by all of their bytes but the length of the body; and those that came since, by all.
        self._learned: dict[bytes, KnownHead] = {}
        self._seen: dict[bytes, KnownHead] = {}

    def find(self, data: bytes) -> KnownHead | None:
        """The head that a piece begins with."""
        end = data.find(END_OF_HEAD, 0, _MAX_BYTES)
        if end < 0:
            return None
        text = data[: end + len(END_OF_HEAD)]
        known = self._seen.get(text)
        return self._see(text) if known is None else known

    def _see(self, text: bytes) -> KnownHead | None:
        """The head that this one is like, with this one's length."""
        cut = _Cut.of(text)
        known = None if cut is None else self._learned.get(cut.rest)
        if cut is None or known is None or not 0 < cut.length <= self._limit:
            return None
        length = b"%d" % cut.length
        known = replace(
            known,
            headers=tuple((name, length if name == b"content-length" else value) for name, value in known.headers),
            head_bytes=len(text),
            body_bytes=cut.length,
        )
        if len(self._seen) >= _MAX_HEADS:
            self._seen.clear()
        self._seen[text] = known
        return known

    def learn(self, text: bytes, visit: Visit, method: bytes, url: bytes, headers: Headers) -> None:
        """Remember a head that is parsed, and good, and keeps its connection.

        Args:
            text: its bytes.
        """
        cut = _Cut.of(text) if len(text) <= _MAX_BYTES else None
        if cut is None or cut.rest in self._learned or not 0 < cut.length <= self._limit:
            return
        head = dict(headers)
        if len(head) != len(headers) or not _OTHERS.isdisjoint(head) or not _is_plain(text, len(headers)):
            return
        said = _read(visit, url, head)
        if said is None or head.get(b"content-length") != b"%d" % cut.length:
            return
        if len(self._learned) >= _MAX_HEADS:
            self._learned.clear()
            self._seen.clear()
        self._learned[cut.rest] = KnownHead(
            method=method,
            url=url,
            headers=tuple(headers),
            head_bytes=len(text),
            body_bytes=cut.length,
            key=read_key(headers),
            said=said,
        )


class _Cut(NamedTuple):
    """A head without the digits that say how long its body is."""

    rest: bytes
    length: int

    @classmethod
    def of(cls, text: bytes) -> _Cut | None:
        """None where they are not written as most clients do."""
        start = text.lower().find(_LENGTH) + len(_LENGTH)
        end = text.find(b"\r", start)
        digits = text[start:end]
        if start < len(_LENGTH) or not digits.isdigit() or len(digits) > _MAX_DIGITS or digits.startswith(b"0"):
            return None
        return cls(text[:start] + text[end:], int(digits))


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
