"""Requests to run a model that would be refused anyway, refused by their connection.

Where more come than can be answered, refusals are most of what there is to do. Here one costs the parsing of its head
and a few lines: no task, no layer of the app, and its body is dropped as it comes. What cannot be told from the head
alone is none of the gate's business, and goes its usual way: a model that is named in a body, a priority.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias
from urllib.parse import parse_qsl

from app.access.decision import read_key, refusal
from app.access.groups import Group
from app.access.keys import Keys
from app.codec.answers import dump_json
from app.codec.message import read_version
from app.errors import InvalidRequestError, ModelNotReadyError, QueueFullError, ServiceError
from app.http.deadline import HEADER, limit_of
from app.http.direct import find
from app.http.refusing.pacing import Pacing
from app.http.refusing.sideline import Sideline
from app.http.refusing.visits import PRIORITY, V2, Closed, Repeats, Target, TurnedAway, Visit
from app.http.wire.raw import json_answer
from app.log import request_id, trace_id
from app.models.keeping.version import Version
from app.serving.dataplane import DataPlane
from app.tracing.context import TraceContext
from app.tracing.told import id_of

access = logging.getLogger("app.access")

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
# A piece that was read, and where in it a body begins.
Text: TypeAlias = tuple[bytes, int]

_METHODS: Final = (b"POST", b"PUT")
_LIMIT: Final = HEADER.lower().encode()
_TEXT_LENGTH: Final = b"inference-header-content-length"
# Paths that are known by heart; clients use a few.
_MAX_PATHS: Final = 256
# Of a body that nobody reads: a longer one is not waited for, and its connection ends.
_DROPPED_BYTES: Final = 1 << 20
_MAX_DIGITS: Final = 18
# Heads that are kept to be recognised are no longer than this, and have nothing that belongs to one request.
_SHORT_HEAD: Final = 2048
_OWN: Final = (_LIMIT, b"x-request-id", b"traceparent")
# For how long one refusal stands for all that come meanwhile: less than it takes until there is room.
_SAME_S: Final = 0.0005
_NUMBER: Final = "0" * 16


class Gate:
    """Stands where connections make requests of what they read.

    Args:
        plane: knows the models.
        keys: None where there are none.
        statuses: answers are counted in it.
        is_off: whether all requests go their usual way: somebody wants to be told of each, in a way that is not known
            here.
        access_log: whether each request has a line of its own.
        clock: as time.monotonic.
        has_origins: whether pages of browsers may ask: their answers have headers that are not known here.
    """

    def __init__(
        self,
        plane: DataPlane,
        *,
        keys: Keys | None = None,
        statuses: Counter[int] | None = None,
        is_off: bool = False,
        access_log: bool = False,
        has_origins: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plane = plane
        self._clock = clock
        self._keys = keys
        self._statuses: Counter[int] = Counter() if statuses is None else statuses
        self._is_off = is_off
        self._access_log = access_log
        self._has_origins = has_origins
        self._targets: dict[tuple[bytes, bytes], Target | None] = {}
        # For who comes, and for who was refused a moment ago.
        self._closed: tuple[dict[Target, Closed], dict[Target, Closed]] = {}, {}
        self.pacing, self.sideline = Pacing(), Sideline(self.count)
        self.arrivals = plane.arrivals

    def visit(self, method: bytes, url: bytes) -> Visit | None:
        """Which model a request is for; None where its head does not say, or there is no such model ready."""
        if method not in _METHODS or self._is_off:
            return None
        key = method, url
        if key in self._targets:
            target = self._targets[key]
        else:
            if len(self._targets) >= _MAX_PATHS:
                self._targets.clear()
            target = self._targets[key] = _target(method, url)
        version = None if target is None else self._version(target)
        return None if target is None or version is None else Visit(target, version)

    def _version(self, target: Target) -> Version | None:
        try:
            return self._plane.store.version(target.model, target.version)
        except ServiceError:
            return None

    def again(self, repeats: Repeats, data: bytes) -> bytes | None:
        """What to answer where this is a request as it was refused before, and would be again; else None."""
        closed = self.closed(repeats.target) if repeats.are(data, len(data)) else None
        if closed is None:
            return None
        text = closed.answer()
        self.count(closed)
        return text

    def closed(self, target: Target, *, is_behind: bool = False) -> Closed | None:
        """What a request to a target is refused with now; None where it may be taken.

        Args:
            is_behind: whether others come first.
        """
        known = self._closed[is_behind]
        closed = known.get(target)
        if closed is None or self._clock() >= closed.until:
            known.pop(target, None)
            closed = self._close(target, known, is_behind=is_behind)
        return closed

    def count(self, closed: Closed) -> None:
        """Count those that were told."""
        told, closed.told = closed.told, 0
        if told:
            self._count(closed.version, closed.status, told)

    def _close(self, target: Target, known: dict[Target, Closed], *, is_behind: bool) -> Closed | None:
        """Ask once more whether requests to a target are refused, and take that for the answer for a moment."""
        version = self._version(target)
        if version is None or self.arrivals.is_clear(version):
            return None
        error = self.arrivals.refusal(version, self._plane.deadline(), is_behind=is_behind)
        if error is None:
            return None
        body, log = _body(target, error), None
        before, _, behind = json_answer(error.status, body, _NUMBER, error.headers).partition(_NUMBER.encode())
        if self._access_log:
            log = partial(self._log, target, version, error.status, None, len(body))
        if len(known) >= _MAX_PATHS:
            known.clear()
        closed = known[target] = Closed(self._clock() + _SAME_S, version, error.status, (before, behind), log)
        return closed

    def turn_away(self, visit: Visit, headers: Headers, *, may_stay: bool, text: Text | None) -> TurnedAway | None:
        """What to answer where the request would be refused anyway; None where it may be taken.

        Args:
            may_stay: whether the client wants to keep the connection.
            text: what of its body came with the head; None where that is not known.
        """
        if self.arrivals.is_clear(visit.version):
            return None
        head = dict(headers)
        try:
            limit_s = limit_of(head[_LIMIT]) if _LIMIT in head else None
        except InvalidRequestError:
            return None
        error = self.arrivals.refusal(visit.version, self._plane.deadline(limit_s))
        if error is None or self._is_special(visit, headers, head, text):
            return None
        return self._refused(visit, error, head, may_stay=may_stay, text=text)

    def _is_special(self, visit: Visit, headers: Headers, head: Mapping[bytes, bytes], text: Text | None) -> bool:
        """Whether its answer may be another one, for reasons that are looked for elsewhere."""
        if len(head) != len(headers) or (self._has_origins and b"origin" in head):
            return True
        if self._keys is not None and refusal(self._keys, Group.INFER, read_key(headers), is_local=False) is not None:
            return True
        return visit.target.is_v2 and _may_have_priority(head, text)

    def _refused(
        self, visit: Visit, error: ServiceError, head: Mapping[bytes, bytes], *, may_stay: bool, text: Text | None
    ) -> TurnedAway:
        self._count(visit.version, error.status)
        length = _length(head)
        is_last = not may_stay or length is None or length > _DROPPED_BYTES or b"expect" in head
        number, headers = id_of(head.get(b"x-request-id", b"")), error.headers
        trace = TraceContext.of(head[b"traceparent"]) if b"traceparent" in head else None
        if trace is not None:
            headers["traceparent"] = trace.header().decode()
        if is_last:
            headers["connection"] = "close"
        body = _body(visit.target, error)
        if self._access_log:
            self._log(visit.target, visit.version, error.status, trace, len(body), number)
        repeats = None if is_last or text is None else _repeats(visit.target, head, text, length or 0)
        return TurnedAway(json_answer(error.status, body, number, headers), is_last, repeats)

    def _count(self, version: Version, status: int, times: int = 1) -> None:
        code = QueueFullError.code if status == QueueFullError.status else ModelNotReadyError.code
        version.statistics.failed(code, 0.0, times)
        self._statuses[status] += times

    def _log(
        self, target: Target, version: Version, status: int, trace: TraceContext | None, size: int, number: str
    ) -> None:
        """The line that every request has."""
        request_id.set(number)
        trace_id.set("-" if trace is None else trace.trace)
        fields = {"took_ms": 0.0, "bytes_in": 0, "bytes_out": size, "model": version.name, "version": version.number}
        access.info("%s %s %d", target.method, target.path, status, extra=fields)
        request_id.set("-")
        trace_id.set("-")


def _body(target: Target, error: ServiceError) -> bytes:
    return dump_json({"error": error.message} if target.is_v2 else error.body())


def _repeats(target: Target, head: Mapping[bytes, bytes], text: Text, length: int) -> Repeats | None:
    """What other requests may be recognised by; None where the head is not the same each time, or is long."""
    piece, start = text
    if start > _SHORT_HEAD or any(name in head for name in _OWN):
        return None
    return Repeats(target, piece[:start], start + length)


def _target(method: bytes, url: bytes) -> Target | None:
    """What a request line names; None where it is no request to run a model that it names, and names once."""
    path, _, query = url.decode("latin-1").partition("?")
    found = find(method.decode("latin-1"), path) if path.isascii() and "%" not in path else None
    if found is None:
        return None
    names = found[2]
    said = [pair for pair in parse_qsl(query, max_num_fields=32) if pair[0] in ("model", "version")]
    if path.startswith(V2):
        said = []  # the protocol has no such parameters
    told = {**names, **dict(said)}
    name = told.get("name", told.get("model"))
    if name is None or len(said) + len(names) != len(told) or ("name" in told and "model" in told):
        return None
    try:
        return Target(method.decode("latin-1"), path, name, read_version(told.get("version")), "name" in names)
    except InvalidRequestError:
        return None


def _length(head: Mapping[bytes, bytes]) -> int | None:
    """How long a body is, as its head says; None where it does not."""
    if b"transfer-encoding" in head:
        return None
    return _number(head.get(b"content-length", b"0"))


def _number(text: bytes) -> int | None:
    return int(text) if text.isdigit() and len(text) <= _MAX_DIGITS else None


def _may_have_priority(head: Mapping[bytes, bytes], text: Text | None) -> bool:
    """Whether a request may say that it comes before others, as far as its text is there."""
    said = _number(head.get(_TEXT_LENGTH, b""))
    length = _length(head) if said is None else said
    if text is None or length is None or b"content-encoding" in head:
        return True
    piece, start = text
    return len(piece) - start < length or piece.find(PRIORITY, start, start + length) >= 0
