"""What is wrong with the head of a request, and with bytes that are none."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, TypeAlias

import httptools

from app.errors import (
    HeadersTooLargeError,
    InvalidRequestError,
    QueueFullError,
    ServiceError,
    TooManyConnectionsError,
    UrlTooLongError,
)
from app.http.connection.admission import Limits

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

# What a host may be written with (RFC 3986 section 3.2.2), and a port.
_HOST: Final = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+,;=%-]*+|\[[0-9A-Fa-f:.]++\])(?::[0-9]{0,5})?")

_VERSIONS: Final = ("1.0", "1.1")
# What may be asked for where there is no room for anything else.
_HEALTH: Final = b"/health/"
_METRICS: Final = b"/metrics"


def head_fault(
    url: bytes, headers: Headers, version: str, limits: Limits, *, waiting: int, is_for_health: bool
) -> ServiceError | None:
    """What is wrong with a complete head; None for a good one.

    Args:
        waiting: requests of the same connection that have yet to be begun.
        is_for_health: whether the connection may ask for nothing else.
    """
    if (fault := size_fault(url, headers, limits)) is not None:
        return fault
    if version not in _VERSIONS:
        return InvalidRequestError("the request is of another HTTP version, expected 1.1")
    if waiting >= limits.pipelined:
        return QueueFullError(
            f"too many requests wait on this connection, at most {limits.pipelined} may",
            retry_after_s=limits.retry_after_s,
        )
    if is_for_health and not (url.startswith(_HEALTH) or url == _METRICS):
        return TooManyConnectionsError("too many open connections", retry_after_s=limits.retry_after_s)
    return header_fault(headers, version)


def size_fault(url: bytes, headers: Headers, limits: Limits) -> ServiceError | None:
    """The limit that a head, or as much of it as there is, is over; None where it is over none."""
    if len(url) > limits.url_bytes:
        return UrlTooLongError(f"the URL is too long, expected at most {limits.url_bytes} bytes")
    if len(headers) > limits.headers:
        return HeadersTooLargeError(f"too many headers, expected at most {limits.headers}")
    return None


def too_long(limits: Limits) -> ServiceError:
    """A head that has not ended after all the bytes it may have."""
    allowed = limits.head_bytes - limits.url_bytes
    return HeadersTooLargeError(f"the headers are too long, expected at most {allowed} bytes")


def header_fault(headers: Headers, version: str) -> ServiceError | None:
    """What RFC 9112 tells a server to refuse, so that nobody on the way reads the request differently."""
    hosts = 0
    for name, value in headers:
        if name == b"host":
            hosts += 1
            if not _HOST.fullmatch(value):
                return InvalidRequestError("the Host header names no host")
        elif name == b"transfer-encoding" and (value.lower() != b"chunked" or version == "1.0"):
            return InvalidRequestError("the Transfer-Encoding is not one this server takes, expected chunked")
    if hosts > 1 or (not hosts and version == "1.1"):
        return InvalidRequestError(f"found {hosts} Host headers, expected one")
    return None


def protocol_fault(exc: httptools.HttpParserError) -> ServiceError:
    """What the parser stumbled over."""
    # What the parser says of a fault in one of our own callbacks, as for a target that is no URL, names Python.
    is_target = isinstance(exc, (httptools.HttpParserCallbackError, httptools.HttpParserInvalidURLError))
    return InvalidRequestError(f"the request is not HTTP/1.1: {'its target is no path' if is_target else exc}")


def without_upgrade(method: bytes, url: bytes, version: str, headers: Headers) -> bytes:
    """A head as its client could have sent it, had it not offered to go on in another language."""
    lines = [b"%b %b HTTP/%b" % (method, url, version.encode())]
    lines += [b"%b: %b" % (name, value) for name, value in headers if name != b"upgrade"]
    return b"\r\n".join([*lines, b"", b""])
