"""The one place where a request is let through to a route or not, in plain ASGI, before its body is read.

Without keys all clients may do everything but change the server, which only programs on the machine may; web pages of
other origins may run models and ask for the health, and nothing else. With keys every request needs one that is good
for its group; only the health is told to everybody.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Sequence
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.access.keyring import Group
from app.access.keys import Keys, read_key, refusal
from app.errors import InvalidRequestError, ServiceError
from app.http.origin import OriginPolicy
from app.http.responses import error_response
from app.http.v2.app import error_response as v2_error_response
from app.messages import cut

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

_V2: Final = "/v2/"
_READING: Final = frozenset(("GET", "HEAD", "OPTIONS"))
# The console is the same for everybody, and asks for a key before it shows anything.
_OPEN: Final = frozenset(("/", "/health/live", "/health/ready", "/v2/health/live", "/v2/health/ready"))
_CONSOLE: Final = "/console/"
_HEALTH: Final = ("/health/", "/v2/health/")
_INFERENCE: Final = "/infer"
# The most fields of a query. No route knows more than a task has parameters.
_MOST_FIELDS: Final = 32
# Fields that are lists: a report's sizes, once for each input.
_LISTS: Final = frozenset({"shape"})
# Ends of the paths that run a model.
_RUNNING: Final = ("/infer", "/graph/operand", "/compare")
# Measures ways to run a model for minutes, beside those it serves.
_TUNING: Final = "/tune"
# Ends of the paths below /v2 that change the server when something is sent there: the log, traces, its models, the
# memory it shares.
_ADMIN: Final = ("/logging", "/trace/setting", "/load", "/unload", "/register", "/unregister")


class AccessPolicy:
    """Policy by which each request is let through or refused.

    Args:
        keys: None where there are none.
        origins: which web pages may send requests where there are no keys.
    """

    def __init__(self, keys: Keys | None, origins: OriginPolicy | None = None) -> None:
        self._keys = keys
        self._origins = origins if keys is None else None

    @property
    def has_keys(self) -> bool:
        """Return whether a request with the same head may be refused another time."""
        return self._keys is not None

    def fault(
        self, method: str, path: str, headers: Headers, query: bytes, client: tuple[str, int] | None
    ) -> ServiceError | None:
        """Return why a request is refused; None for one that is let through."""
        group, fault = group_of(method, path), None
        if self._origins is not None and not _is_for_every_page(method, path):
            fault = self._origins.fault(headers)
        if fault is None and group is not None:
            is_local = group is Group.ADMIN and self._keys is None and _is_local(path, headers, client)
            key = None if self._keys is None else read_key(headers)
            fault = refusal(self._keys, group, key, is_local=is_local)
        return fault or _query_fault(query)


class Access:
    """Wraps the app."""

    def __init__(self, app: ASGIApp, policy: AccessPolicy) -> None:
        self._app = app
        self._policy = policy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the lifespan, which passes through."""
        if scope["type"] != "http" or (fault := self._fault(scope)) is None:
            await self._app(scope, receive, send)
        else:
            await _answer(fault, scope["path"])(scope, receive, send)

    def _fault(self, scope: Scope) -> ServiceError | None:
        query = scope.get("query_string", b"")
        return self._policy.fault(scope["method"], scope["path"], scope["headers"], query, scope.get("client"))


def group_of(method: str, path: str) -> Group | None:
    """What a request is for; None for what everybody is told. What no route answers is metadata."""
    if method not in _READING:
        if path.endswith(_RUNNING):
            return Group.INFER
        if path.endswith(_TUNING) or (path.startswith(_V2) and path.endswith(_ADMIN)):
            return Group.ADMIN
    if path in _OPEN or path.startswith(_CONSOLE):
        return None
    return Group.METRICS if path == "/metrics" else Group.METADATA


def _is_for_every_page(method: str, path: str) -> bool:
    """Return whether a request runs a model or asks for the health, which pages of any origin may do."""
    return path.startswith(_HEALTH) or (method not in _READING and path.endswith(_INFERENCE))


def _query_fault(query: bytes) -> ServiceError | None:
    """Return why a query is refused, whatever the route: too many fields, or one that is there twice."""
    fields = query.count(b"&") + 1
    if fields > _MOST_FIELDS:
        found = f"found {fields}, expected at most {_MOST_FIELDS}"
        return InvalidRequestError(f"the query has too many fields: {found}")
    if fields == 1:
        return None
    times = Counter(name for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True))
    twice = next((name for name, count in times.items() if count > 1 and name not in _LISTS), None)
    if twice is None:
        return None
    return InvalidRequestError(f"query field '{cut(twice)}': found {times[twice]} times, expected once")


def _is_local(path: str, headers: Headers, client: tuple[str, int] | None) -> bool:
    """Whether a request comes from a program on this machine, and not from a page in a browser that runs there.

    The server's own page may have models measured, which changes nothing.
    """
    origin = _header(headers, b"origin")
    if origin is not None and not (path.endswith(_TUNING) and _is_own_page(origin, _header(headers, b"host"))):
        return False
    host = "" if client is None else client[0]
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a unix socket has no address, and belongs to somebody on this machine
        return not host


def _is_own_page(origin: bytes, host: bytes | None) -> bool:
    """Whether a page is this server's, asked for by an address of the machine: a name may be anybody's (rebinding)."""
    try:
        page = urlsplit(origin.decode("latin-1"))
        is_here = page.hostname == "localhost" or ipaddress.ip_address(page.hostname or "").is_loopback
    except ValueError:
        return False
    return is_here and page.netloc.encode("latin-1") == host


def _header(headers: Headers, wanted: bytes) -> bytes | None:
    return next((value for name, value in headers if name == wanted), None)


def _answer(error: ServiceError, path: str) -> Response:
    return v2_error_response(error) if path.startswith(_V2) or path == "/v2" else error_response(error)
