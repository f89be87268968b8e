"""Messages of HTTP/1.1: heads of requests as httptools finds them, chunked bodies, and answers as bytes.

A head, and a chunked body, end with an empty line: the parser gets a piece up to the next one and no further, so what
it has found belongs to one request. A body that says its length is not for the parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

import httptools

from app.errors import HeadersTooLargeError, InvalidRequestError, ServiceError, UrlTooLongError
from app.http.middleware import Exchange
from app.http.responses import error_response
from app.settings import Settings

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

END_OF_HEAD: Final = b"\r\n\r\n"
_OVERLAP: Final = len(END_OF_HEAD) - 1
# What a host may be written with (RFC 3986 section 3.2.2), and a port.
_HOST: Final = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+,;=%-]*+|\[[0-9A-Fa-f:.]++\])(?::[0-9]{0,5})?")
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_LINES: Final = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}


class Head:
    """The head of a request; it does not change once it is read, and may be that of many requests.

    Attributes:
        url, raw_path, query: as the first line has them; path is decoded.
        headers: names in lower case.
        length: bytes of the body; None of a chunked one.
        expects: whether the client waits for 100 Continue.
        keeps_alive: whether another request may follow.
        parsed: what the handler of its first request has read in it.
    """

    __slots__ = (
        "expects", "headers", "keeps_alive", "length", "method", "path", "query", "raw_path", "parsed", "url", "version"
    )  # fmt: skip

    def __init__(self) -> None:
        self.url = self.raw_path = self.query = b""
        self.method = self.path = ""
        self.version = "1.1"
        self.headers: list[tuple[bytes, bytes]] = []
        self.length: int | None = 0
        self.expects = self.keeps_alive = False
        self.parsed: object = None

    @property
    def is_for_health(self) -> bool:
        """Return whether it asks for what is answered where there is no room for anything else."""
        return self.url.startswith(b"/health/") or self.url == b"/metrics"

    def check(self, settings: Settings) -> None:
        """Read what the complete head says, and refuse what RFC 9112 tells a server to.

        So no proxy on the way reads the request differently. Two lengths, a length of no digits, and a length beside
        chunks are faults to the parser already.

        Raises:
            ServiceError: there is something wrong with it.
        """
        self.check_size(settings)
        if self.version not in ("1.0", "1.1"):
            raise InvalidRequestError("the request is of another HTTP version, expected 1.1")
        hosts = 0
        for name, value in self.headers:
            if name == b"host":
                hosts += 1
                if not _HOST.fullmatch(value):
                    raise InvalidRequestError("the Host header names no host")
            elif name == b"content-length":
                if not value.strip().isdigit():
                    raise InvalidRequestError("the Content-Length is no number")
                self.length = int(value.strip().lstrip(b"0") or b"0")  # int() takes 4,300 digits
            elif name == b"transfer-encoding":
                if value.lower() != b"chunked" or self.version == "1.0":
                    raise InvalidRequestError("the Transfer-Encoding is not one this server takes, expected chunked")
                self.length = None
            elif name == b"expect":
                self.expects = value.lower() == b"100-continue" and self.version == "1.1"
        if hosts > 1 or (not hosts and self.version == "1.1"):
            raise InvalidRequestError(f"found {hosts} Host headers, expected one")
        self._read_target()

    def check_size(self, settings: Settings) -> None:
        """Check the size of the head, or of the part that has arrived.

        Raises:
            UrlTooLongError, HeadersTooLargeError: the head is over a limit.
        """
        if len(self.url) > settings.max_url_bytes:
            raise UrlTooLongError(f"the URL is too long, expected at most {settings.max_url_bytes} bytes")
        if len(self.headers) > settings.max_headers:
            raise HeadersTooLargeError(f"too many headers, expected at most {settings.max_headers}")

    def _read_target(self) -> None:
        try:
            parts = httptools.parse_url(self.url)
            self.raw_path, self.query = parts.path, parts.query or b""
            path = self.raw_path.decode("ascii")
        except (httptools.HttpParserInvalidURLError, AttributeError, ValueError):
            raise InvalidRequestError("the request is not HTTP/1.1: its target is no path") from None
        self.path = unquote(path) if "%" in path else path


class Request:
    """One request of a connection. Its answer is written for it alone, and it is compared by identity.

    Attributes:
        expects, keeps_alive: as its head has them, until something else is known.
    """

    __slots__ = ("expects", "head", "keeps_alive")

    def __init__(self, head: Head) -> None:
        self.head = head
        self.expects, self.keeps_alive = head.expects, head.keeps_alive


class Reader:
    """One connection's parser; `found` is the head of the message at hand, as far as it has come."""

    __slots__ = ("_is_complete", "_is_whole", "_parser", "_pieces", "_tail", "found")

    def __init__(self) -> None:
        self.found = Head()
        self._parser: Any = httptools.HttpRequestParser(self)
        self._is_complete = self._is_whole = False
        self._pieces: list[bytes] = []
        # The last bytes that were given to the parser: an empty line may be cut in two.
        self._tail = b""

    def cut(self, data: bytes, at: int, most: int) -> int:
        """Return where the piece that begins at `at` ends: behind an empty line, or with all, or so many bytes."""
        stop, tail = min(len(data), at + most), self._tail
        begun = (tail + data[at : at + _OVERLAP]).find(END_OF_HEAD) if tail else -1
        end = at - len(tail) + begun if begun >= 0 else data.find(END_OF_HEAD, at, stop)
        if 0 <= end + len(END_OF_HEAD) <= stop and (begun >= 0 or end >= 0):
            self._tail = b""
            return end + len(END_OF_HEAD)
        self._tail = (tail + data[max(at, stop - _OVERLAP) : stop])[-_OVERLAP:]
        return stop

    def head(self, piece: memoryview) -> Head | None:
        """Return the head that ends with a piece; None where it goes on.

        Raises:
            InvalidRequestError: it is not HTTP.
        """
        self._feed(piece)
        if not self._is_complete:
            return None
        head, self.found = self.found, Head()
        self._is_complete = self._is_whole = False
        return head

    def chunks(self, piece: memoryview) -> tuple[list[bytes], bool]:
        """Return what a piece has of a chunked body, and whether the body ends with it.

        Raises:
            InvalidRequestError: the chunks are not HTTP.
        """
        self._is_complete = True  # another request in this piece is refused, as in a head
        self._feed(piece)
        pieces, self._pieces = self._pieces, []
        is_whole, self._is_complete = self._is_whole, False
        if is_whole:
            self._tail = b""
        # Fields behind a chunked body are headers to the parser, but must not become any: they go nowhere.
        self.found = Head()
        return pieces, is_whole

    def skip(self) -> None:
        """Expect the next head: the body of the last one is not for the parser."""
        self._parser = httptools.HttpRequestParser(self)

    def close(self) -> None:
        """Let the parser go, which refers to this: else every connection would be left to the garbage collector."""
        self._parser = None

    def _feed(self, piece: memoryview) -> None:
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            self._decline_upgrade()
        except httptools.HttpParserCallbackError:  # `on_message_begin`; what the parser says of it names Python
            raise InvalidRequestError("the request is not HTTP/1.1: a request begins where none may") from None
        except httptools.HttpParserError as exc:
            raise InvalidRequestError(f"the request is not HTTP/1.1: {exc}") from None

    def _decline_upgrade(self) -> None:
        """Read a head again without its offer to go on in another protocol (RFC 9110 section 7.8).

        With the offer the parser takes what follows for that protocol, be it this request's body.
        """
        if self._is_complete:  # CONNECT, whose target is no path
            return
        head, self.found = self.found, Head()
        lines = [b"%b %b HTTP/%b" % (head.method.encode(), head.url, head.version.encode())]
        lines += [b"%b: %b" % (name, value) for name, value in head.headers if name != b"upgrade"]
        self.skip()
        self._feed(memoryview(b"\r\n".join([*lines, b"", b""])))

    # What the parser calls

    def on_message_begin(self) -> None:
        """Begin a request; what was collected before its first byte is none of its."""
        if self._is_complete:  # two requests in a piece that has one end: others might read it differently
            raise ValueError
        self.found = Head()

    def on_url(self, url: bytes) -> None:
        """Take a part of the target."""
        self.found.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        self.found.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Note what the first line says."""
        head, parser = self.found, self._parser
        head.method = parser.get_method().decode("ascii")
        head.version = parser.get_http_version()
        is_tunnel = head.method == "CONNECT"  # the parser takes nothing behind it for a request
        head.keeps_alive = head.version != "1.0" and not is_tunnel and parser.should_keep_alive()
        self._is_complete = is_tunnel or not parser.should_upgrade()
        self._is_whole = False

    def on_body(self, body: bytes) -> None:
        """Take a part of a chunk."""
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        """Note the end of a message."""
        self._is_whole = True


def head_of(request: Request, status: int, headers: Iterable[tuple[bytes, bytes]], always: Headers) -> bytes:
    """Return an answer's head; after one that says ``Connection: close`` the request's connection ends.

    Args:
        headers: the answer's own.
        always: those that every answer has.

    Raises:
        ValueError: a header that would be several lines.
    """
    line = _LINES.get(status) or b"HTTP/1.1 %d \r\n" % status
    pieces = [line, *[b"%b: %b\r\n" % header for header in always]]
    for name, value in headers:
        if name == b"connection" and value == b"close":
            request.keeps_alive = False
        else:
            pieces.append(b"%b: %b\r\n" % (name, value))
    if not request.keeps_alive:
        pieces.append(b"connection: close\r\n")
    pieces.append(b"\r\n")
    text = b"".join(pieces)
    if text.count(b"\n") != text.count(b"\r\n") or text.count(b"\r\n") != len(pieces):
        raise ValueError("a header of the answer has a line end in it")
    return text


def final_error(error: ServiceError, always: Headers) -> bytes:
    """Return the whole answer to what is no request, or to one that is not taken; it ends the connection."""
    response = error_response(error)
    headers = Exchange("", "", ()).headers(response.raw_headers)
    return head_of(Request(Head()), response.status_code, headers, always) + bytes(response.body)
