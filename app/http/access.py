"""Access control, as ASGI middleware: requests are admitted or refused before their body is read.

Without keys every client may do everything except change the server, which only programs on the same machine may; web
pages of other origins may only run models and request the health. With keys every request needs one that allows its
group, except the health.

A browser sends requests to any address for any page, and names the page in ``Origin``. A page whose name resolves to
this server's address (DNS rebinding) can even read the answers; then ``Host`` is the page's name. `OriginPolicy`
refuses both.
"""

from __future__ import annotations

import ipaddress
import socket
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias
from urllib.parse import SplitResult, parse_qsl, urlsplit

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.errors import ForbiddenError, InvalidRequestError, ServiceError
from app.http.responses import error_response
from app.http.v2.app import error_response as v2_error_response
from app.keys import Group, Keys, read_key, refusal
from app.messages import cut
from app.settings import Settings

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

_V2: Final = "/v2/"
_READING: Final = frozenset(("GET", "HEAD", "OPTIONS"))
# Open to all: the health, and the console, which asks for a key before it shows data.
_OPEN: Final = frozenset(("/", "/ping", "/health/live", "/health/ready", "/v2/health/live", "/v2/health/ready"))
_CONSOLE: Final = "/console/"
_HEALTH: Final = ("/health/", "/v2/health/", "/ping")
_INFERENCE: Final = "/infer"
# Limit of query fields; no route has more than a task has parameters.
_MOST_FIELDS: Final = 32
# Fields that may be repeated: the shapes of a report's inputs.
_LISTS: Final = frozenset({"shape"})
# Ends of the paths that run a model.
_RUNNING: Final = ("/infer", ":predict", "/graph/operand", "/compare")
_PREDICTIONS: Final = "/predictions/"
# Paths that run a model on texts, and one on sound.
_TEXT: Final = frozenset(
    ("/", "/v1/embeddings", "/v1/rerank", "/v1/audio/transcriptions", "/embed", "/rerank", "/predict", "/tokenize")
)
# End of the path of a WebSocket that runs a model.
_STREAM: Final = "/stream"
_STREAM_DEPTH: Final = 3
# Measures a model for minutes, beside its requests.
_TUNING: Final = "/tune"
# Ends of the paths below /v2 that change the server: log, traces, models, shared memory.
_ADMIN: Final = ("/logging", "/trace/setting", "/load", "/unload", "/register", "/unregister")
_PORTS: Final = {"http": 80, "https": 443}
_ANY: Final = "*"


class AccessPolicy:
    """Policy that admits or refuses requests.

    Args:
        keys: None without keys.
        origins: which web pages may send requests if there are no keys.
    """

    def __init__(self, keys: Keys | None, origins: OriginPolicy | None = None) -> None:
        self._keys = keys
        self._origins = origins if keys is None else None

    @property
    def has_keys(self) -> bool:
        """Return whether a request with the same head may be refused later."""
        return self._keys is not None

    def fault(
        self, method: str, path: str, headers: Headers, query: bytes, client: tuple[str, int] | None
    ) -> ServiceError | None:
        """Return the error for a request that is refused, or None."""
        group, fault = group_of(method, path), None
        if self._origins is not None and not _is_for_every_page(method, path):
            fault = self._origins.fault(headers)
        if fault is None and group is not None:
            is_local = group is Group.ADMIN and self._keys is None and _is_local(path, headers, client)
            key = None if self._keys is None else read_key(headers)
            fault = refusal(self._keys, group, key, is_local=is_local)
        return fault or _query_fault(query)


class Access:
    """Middleware that applies the policy."""

    def __init__(self, app: ASGIApp, policy: AccessPolicy) -> None:
        self._app = app
        self._policy = policy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on an admitted request, or the lifespan; answer a refused one."""
        if scope["type"] != "http" or (fault := self._fault(scope)) is None:
            await self._app(scope, receive, send)
        else:
            await _answer(fault, scope["path"])(scope, receive, send)

    def _fault(self, scope: Scope) -> ServiceError | None:
        query = scope.get("query_string", b"")
        return self._policy.fault(scope["method"], scope["path"], scope["headers"], query, scope.get("client"))


def group_of(method: str, path: str) -> Group | None:
    """Return the group of a request, None if it is open to all. Unknown paths belong to metadata."""
    if method not in _READING:
        if path.endswith(_RUNNING) or path.startswith(_PREDICTIONS) or path in _TEXT:
            return Group.INFER
        if path.endswith(_TUNING) or (path.startswith(_V2) and path.endswith(_ADMIN)):
            return Group.ADMIN
    if path.endswith(_STREAM) and path.startswith("/models/") and path.count("/") == _STREAM_DEPTH:
        return Group.INFER
    if path in _OPEN or path.startswith(_CONSOLE):
        return None
    return Group.METRICS if path == "/metrics" else Group.METADATA


def _is_for_every_page(method: str, path: str) -> bool:
    """Return whether a request runs a model or asks for the health, which pages of any origin may do."""
    return path.startswith(_HEALTH) or (method not in _READING and path.endswith(_INFERENCE))


def _query_fault(query: bytes) -> ServiceError | None:
    """Return the error for a query with too many or repeated fields, or None."""
    fields = query.count(b"&") + 1
    if fields > _MOST_FIELDS:
        found = f"found {fields}, expected at most {_MOST_FIELDS}"
        return InvalidRequestError(f"the query has too many fields: {found}")
    if fields == 1:
        return None
    times = Counter(name for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True))
    repeated = next((name for name, count in times.items() if count > 1 and name not in _LISTS), None)
    if repeated is None:
        return None
    return InvalidRequestError(f"query field '{cut(repeated)}': found {times[repeated]} times, expected once")


def _is_local(path: str, headers: Headers, client: tuple[str, int] | None) -> bool:
    """Return whether a request comes from a program on this machine, and not from a page in its browser.

    The server's own page may measure models, which changes nothing.
    """
    origin = _header(headers, b"origin")
    if origin is not None and not (path.endswith(_TUNING) and _is_own_page(origin, _header(headers, b"host"))):
        return False
    host = "" if client is None else client[0]
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a Unix socket has no address, and its peer is on this machine
        return not host


def _is_own_page(origin: bytes, host: bytes | None) -> bool:
    """Return whether a page is this server's, opened by a loopback address (a name could be rebound by DNS)."""
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


class OriginPolicy:
    """Allowed hosts, and web origins that may send requests."""

    def __init__(self, settings: Settings) -> None:
        self._origins = frozenset(settings.cors_origins)
        self._hosts = frozenset(
            name.lower().rstrip(".") for name in (*settings.allowed_hosts, settings.host, socket.gethostname())
        )

    def fault(self, headers: Iterable[tuple[bytes, bytes]]) -> ServiceError | None:
        """Return the error for a request with these headers, or None."""
        found = {name: value.decode("latin-1") for name, value in headers if name in (b"host", b"origin")}
        host, origin = found.get(b"host"), found.get(b"origin")
        if host is not None and not self._is_own(_split(f"//{host}")):
            return ForbiddenError(
                f"Host: found '{cut(host)}', expected an IP address, a name without dots or one of allowed_hosts;"
                " a server with keys accepts any name"
            )
        if origin is not None and not self._may_call(origin, host):
            return ForbiddenError(
                f"Origin: found '{cut(origin)}', expected the server's own or one of cors_origins;"
                " a server with keys accepts any origin"
            )
        return None

    def _is_own(self, host: SplitResult | None) -> bool:
        """Return whether a host is one of the server's, or a name that no attacker can register."""
        if host is None:
            return False
        name = (host.hostname or "").rstrip(".")
        if "." not in name or _ANY in self._hosts or name in self._hosts or _is_address(name):
            return True
        return any(f"*.{parent}" in self._hosts for parent in _parents(name))

    def _may_call(self, origin: str, host: str | None) -> bool:
        if _ANY in self._origins or origin in self._origins:
            return True
        page = _split(origin)
        if page is None or page.scheme not in _PORTS or host is None:
            return False
        own = _split(f"{page.scheme}://{host}")
        return own is not None and (page.hostname, _port(page)) == (own.hostname, _port(own))


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises if it is not a number
    except ValueError:
        return None
    return parts


def _port(parts: SplitResult) -> int:
    return parts.port or _PORTS[parts.scheme]


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _parents(name: str) -> Iterable[str]:
    labels = name.split(".")
    return (".".join(labels[start:]) for start in range(1, len(labels)))
