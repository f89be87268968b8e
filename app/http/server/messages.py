"""Messages of HTTP/1.1: heads of requests, parsed by httptools, chunked bodies, and heads of answers.

A head and a chunked body end with an empty line: the parser gets bytes up to the next one and no further, so that they
belong to one request. A body with a Content-Length bypasses the parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

import httptools

from app.errors import HeadersTooLargeError, InvalidRequestError, UrlTooLongError
from app.settings import Settings

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
Pieces: TypeAlias = Sequence[bytes | memoryview]

END_OF_HEAD: Final = b"\r\n\r\n"
_OVERLAP: Final = len(END_OF_HEAD) - 1
_MOST_HEADERS: Final = 100
# Characters of a host (RFC 3986 section 3.2.2), and a port.
_HOST: Final = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+,;=%-]*+|\[[0-9A-Fa-f:.]++\])(?::[0-9]{0,5})?")
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_CHUNKED: Final = b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"
_LINES: Final = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}


class Head:
    """Head of a request. It does not change after it was read, and may be shared by several requests.

    Attributes:
        url, raw_path, query: as in the request line; path is decoded.
        headers: names in lower case.
        length: bytes of the body; None if chunked.
        expects: whether the client waits for 100 Continue.
        keeps_alive: whether another request may follow.
        parsed: what a handler has read from it, cached.
    """

    def __init__(self) -> None:
        self.url = self.raw_path = self.query = b""
        self.method = self.path = ""
        self.version = "1.1"
        self.headers: list[tuple[bytes, bytes]] = []
        self.length: int | None = 0
        self.expects = self.keeps_alive = False
        self.parsed: Any = None

    def check(self, settings: Settings) -> None:
        """Interpret the complete head, and refuse what RFC 9112 requires a server to refuse.

        This prevents that a proxy interprets the request differently. The parser already refuses two lengths, a length
        that is not a number, and a length together with chunks.

        Raises:
            ServiceError: the head is invalid.
        """
        self.check_size(settings)
        if self.version not in ("1.0", "1.1"):
            raise InvalidRequestError(f"found HTTP version {self.version}, expected 1.1")
        hosts = 0
        for name, value in self.headers:
            if name == b"host":
                hosts += 1
                if not _HOST.fullmatch(value):
                    raise InvalidRequestError("the Host header is invalid, expected a host name or an IP address")
            elif name == b"content-length":
                if not value.strip().isdigit():
                    raise InvalidRequestError("the Content-Length is not a number")
                self.length = int(value.strip().lstrip(b"0") or b"0")  # int() takes 4,300 digits
            elif name == b"transfer-encoding":
                if value.lower() != b"chunked" or self.version == "1.0":
                    raise InvalidRequestError("the Transfer-Encoding is not supported, expected chunked")
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
        if len(self.headers) > _MOST_HEADERS:
            raise HeadersTooLargeError(f"too many headers, expected at most {_MOST_HEADERS}")

    def _read_target(self) -> None:
        try:
            parts = httptools.parse_url(self.url)
            self.raw_path, self.query = parts.path, parts.query or b""
            path = self.raw_path.decode("ascii")
        except (httptools.HttpParserInvalidURLError, AttributeError, ValueError):
            raise InvalidRequestError("the request is not HTTP/1.1: its target is not a path") from None
        self.path = unquote(path) if "%" in path else path


class Request:
    """Request of a connection, compared by identity; a subclass receives its body and answers it.

    Attributes:
        expects, keeps_alive: from its head, until they change.
    """

    def __init__(self, head: Head) -> None:
        self.head = head
        self.expects, self.keeps_alive = head.expects, head.keeps_alive

    def begin(self) -> None:
        """Begin, now that the head is complete."""

    def take(self, piece: bytes | memoryview) -> None:
        """Take a piece of the body."""

    def filled(self, count: int) -> memoryview | None:
        """Count bytes that were read into the last buffer, and return the next one; without one, use ``take``."""
        return None

    def check_deadline(self) -> None:
        """End the request if its own time limit has passed before the body is complete, or a WebSocket is idle."""

    def complete(self) -> None:
        """Answer, now that the body is complete."""

    def lost(self) -> None:
        """End the request: the client has left, or was refused because it was too slow."""

    def stop(self) -> None:
        """Let the connection close after the answer, because the server stops."""
        self.keeps_alive = False


class Reader:
    """Parser of one connection; `found` is the head that is being parsed."""

    def __init__(self) -> None:
        self.found = Head()
        self._parser: Any = httptools.HttpRequestParser(self)
        self._is_complete = self._is_whole = False
        self._pieces: list[bytes] = []
        # The last bytes that were parsed, since an empty line may be split between two reads.
        self._tail = b""

    def cut(self, data: bytes, at: int, most: int) -> int:
        """Return where the piece beginning at `at` ends: after an empty line, or after all, or after so many bytes."""
        tail, text = self._tail, data[at : at + most]
        end = (tail + text).find(END_OF_HEAD)
        if end >= 0:
            self._tail = b""
            return at + end + len(END_OF_HEAD) - len(tail)
        self._tail = (tail + text[-_OVERLAP:])[-_OVERLAP:]
        return at + len(text)

    def head(self, piece: memoryview) -> Head | None:
        """Return the head that ends with a piece, or None if it continues.

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
        """Return the contents of a chunked body in a piece, and whether the body ends with it.

        Raises:
            InvalidRequestError: the chunks are not HTTP.
        """
        self._is_complete = True  # a request that begins in this piece is refused, as in a head
        self._feed(piece)
        pieces, self._pieces = self._pieces, []
        is_whole, self._is_complete = self._is_whole, False
        if is_whole:
            self._tail = b""
        # The parser reports trailers as headers; they are dropped.
        self.found = Head()
        return pieces, is_whole

    def skip(self) -> None:
        """Expect the next head; the body of the last one bypasses the parser."""
        self._parser = httptools.HttpRequestParser(self)

    def close(self) -> None:
        """Release the parser, whose reference to this would leave every connection to the garbage collector."""
        self._parser = None

    def _feed(self, piece: memoryview) -> None:
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            self._decline_upgrade()
        except httptools.HttpParserCallbackError:  # from `on_message_begin`; the parser's own message mentions Python
            raise InvalidRequestError("the request is not HTTP/1.1: found a second request within the first") from None
        except httptools.HttpParserError as exc:
            raise InvalidRequestError(f"the request is not HTTP/1.1: {exc}") from None

    def _decline_upgrade(self) -> None:
        """Continue as without the Upgrade header (RFC 9110 section 7.8): the parser expects no chunks after it."""
        head = self.found
        if head.method != "CONNECT" and any(name == b"transfer-encoding" for name, _ in head.headers):
            self._is_complete = False
            self._parser.feed_data(_CHUNKED)
            self.found = head

    # What the parser calls

    def on_message_begin(self) -> None:
        """Begin a request, dropping headers collected before its first byte."""
        if self._is_complete:  # two requests up to one empty line: other servers might interpret them differently
            raise ValueError
        self.found = Head()

    def on_url(self, url: bytes) -> None:
        """Append a part of the target."""
        self.found.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Append a header."""
        self.found.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Note method and version."""
        head, parser = self.found, self._parser
        head.method = parser.get_method().decode("ascii")
        head.version = parser.get_http_version()
        is_tunnel = head.method == "CONNECT"  # the parser does not expect another request after it
        head.keeps_alive = head.version != "1.0" and not is_tunnel and parser.should_keep_alive()
        self._is_complete, self._is_whole = True, False

    def on_body(self, body: bytes) -> None:
        """Append a part of a chunk."""
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        """Note the end of a message."""
        self._is_whole = True


def head_of(request: Request, status: int, headers: Iterable[tuple[bytes, bytes]], always: Headers) -> bytes:
    """Return the head of an answer; with ``Connection: close`` the connection ends after it.

    Args:
        request: the request that is answered.
        status: of the answer.
        headers: of this answer.
        always: of every answer.

    Raises:
        ValueError: a header contains a line end.
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
        raise ValueError("found a line end in a header of the answer, expected none")
    return text
