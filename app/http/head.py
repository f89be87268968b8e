"""What is wrong with the head of a request, and with bytes that are none."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, TypeAlias

import httptools

from app.errors import HeadersTooLargeError, InvalidRequestError, ServiceError, UrlTooLongError
from app.http.door import Limits

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

# What a host may be written with (RFC 3986 section 3.2.2), and a port.
_HOST: Final = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+,;=%-]*+|\[[0-9A-Fa-f:.]++\])(?::[0-9]{0,5})?")


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
