"""The one place where a request is let through to a route or not, in plain ASGI, before its body is read.

Without keys everybody may do everything but change the server, which only who sits at the machine may. With keys every
request needs one that is good for its group; only the health is told to everybody.
"""

from __future__ import annotations

import ipaddress
from typing import Final
from urllib.parse import urlsplit

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.access.decision import read_key, refusal
from app.access.groups import Group
from app.access.keys import Keys
from app.errors import ServiceError
from app.http.responses import error_response
from app.http.v2 import errors as v2

_V2: Final = "/v2/"
_READING: Final = frozenset(("GET", "HEAD", "OPTIONS"))
# The console is the same for everybody, and asks for a key before it shows anything.
_OPEN: Final = frozenset(("/", "/health/live", "/health/ready", "/v2/health/live", "/v2/health/ready"))
_CONSOLE: Final = "/console/"
# Ends of the paths that run a model.
_RUNNING: Final = ("/infer", "/graph/operand", "/compare")
# Measures ways to run a model for minutes, beside those it serves.
_TUNING: Final = "/tune"
# Ends of the paths below /v2 that change the server when something is sent there: the log, traces, its models, the
# memory it shares.
_ADMIN: Final = ("/logging", "/trace/setting", "/load", "/unload", "/register", "/unregister")


class Access:
    """Wraps the app.

    Args:
        keys: None where there are none.
    """

    def __init__(self, app: ASGIApp, keys: Keys | None) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the lifespan, which passes through."""
        if scope["type"] != "http" or (refusal := self._refusal(scope)) is None:
            await self._app(scope, receive, send)
        else:
            await _answer(refusal, scope["path"])(scope, receive, send)

    def _refusal(self, scope: Scope) -> ServiceError | None:
        group = group_of(scope["method"], scope["path"])
        if group is None:
            return None
        is_local = group is Group.ADMIN and self._keys is None and _is_local(scope)
        return refusal(self._keys, group, None if self._keys is None else read_key(scope["headers"]), is_local=is_local)


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


def _is_local(scope: Scope) -> bool:
    """Whether a request comes from a program on this machine, and not from a page in a browser that runs there.

    The server's own page may have models measured, which changes nothing.
    """
    origin = _header(scope, b"origin")
    if origin is not None and not (scope["path"].endswith(_TUNING) and _is_own_page(origin, _header(scope, b"host"))):
        return False
    client = scope.get("client")
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


def _header(scope: Scope, wanted: bytes) -> bytes | None:
    return next((value for name, value in scope["headers"] if name == wanted), None)


def _answer(error: ServiceError, path: str) -> Response:
    return v2.error_response(error) if path.startswith(_V2) or path == "/v2" else error_response(error)
