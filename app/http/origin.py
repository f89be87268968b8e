"""Refusal of requests that web pages of other origins make a browser send, on servers without keys.

A browser sends requests to any address for any page, and names the page in ``Origin``. A page whose name resolves to
this server's address (DNS rebinding) can even read the answers; then ``Host`` is the page's name.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from typing import Final
from urllib.parse import SplitResult, urlsplit

from app.errors import ForbiddenError, ServiceError
from app.messages import cut
from app.settings import Settings

_PORTS: Final = {"http": 80, "https": 443}
_ANY: Final = "*"


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
