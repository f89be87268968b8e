"""Requests that are passed to the ASGI application: all but those that run a model."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from app.errors import InternalError
from app.http.server.connection import Connection
from app.http.server.messages import Head, Request

log = logging.getLogger(__name__)

# Bytes of a body buffered until the application reads them; the rest waits in the socket.
_HIGH_WATER: Final = 1 << 16


class AsgiRequest(Request):
    """A request and its answer (https://asgi.readthedocs.io/en/latest/specs/www.html)."""

    def __init__(self, connection: Connection, head: Head) -> None:
        super().__init__(head)
        self._connection = connection
        self._body, self._is_whole, self._is_delivered = bytearray(), False, False
        self._changed = asyncio.Event()
        self._is_chunked = False

    def begin(self) -> None:
        """Call the application in a task."""
        connection, head = self._connection, self.head
        address = connection.transport.get_extra_info("sockname")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": head.version,
            "server": tuple(address[:2]) if isinstance(address, tuple) else None,
            "client": connection.client,
            "scheme": "https" if connection.transport.get_extra_info("sslcontext") else "http",
            "method": head.method,
            "path": head.path,
            "raw_path": head.raw_path,
            "query_string": head.query,
            "headers": [*head.headers],
        }
        connection.run(self._run(scope))

    def take(self, piece: bytes | memoryview) -> None:
        """Buffer a piece of the body until the application reads it."""
        self._body += piece
        if len(self._body) > _HIGH_WATER:
            self._connection.hold("body")
        self._changed.set()

    def complete(self) -> None:
        """Mark the body as complete."""
        self._is_whole = True
        self._changed.set()

    def lost(self) -> None:
        """Tell the application that the client has left, or was refused because it was too slow."""
        self._changed.set()

    async def _run(self, scope: dict[str, Any]) -> None:
        connection = self._connection
        try:
            await connection.config.loaded_app(scope, self._receive, self._send)
        except Exception:
            log.exception("%s %s failed", self.head.method, self.head.path)
        finally:
            if connection.owns(self):  # the application has failed
                connection.refuse(InternalError("internal error; see the server's log"))

    async def _receive(self) -> dict[str, Any]:
        while True:
            if not self._connection.owns(self):  # it is answered, or the client has left
                return {"type": "http.disconnect"}
            if self._body or (self._is_whole and not self._is_delivered):
                break
            self._connection.write_continue(self)
            self._changed.clear()
            await self._changed.wait()
        body, self._body = bytes(self._body), bytearray()
        self._is_delivered = self._is_whole
        self._connection.release("body")
        return {"type": "http.request", "body": body, "more_body": not self._is_whole}

    async def _send(self, message: Any) -> None:
        await self._connection.flowing.wait()
        if message["type"] == "http.response.start":
            self._start(message["status"], [(name.lower(), value) for name, value in message["headers"]])
        elif message["type"] == "http.response.body":
            self._resume(message.get("body", b""), message.get("more_body", False))

    def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        head, names = self.head, {name for name, _ in headers}
        if b"content-length" not in names and head.method != "HEAD" and status not in (204, 304):
            self._is_chunked = head.version == "1.1"
            if self._is_chunked:
                headers.append((b"transfer-encoding", b"chunked"))
            else:
                self.keeps_alive = False
        self._connection.start(self, status, headers, ())

    def _resume(self, body: bytes | memoryview, has_more: bool) -> None:
        pieces: list[bytes | memoryview] = [body] if body else []
        if self._is_chunked:
            pieces = [b"%x\r\n" % len(body), body, b"\r\n"] if body else []
            pieces += [] if has_more else [b"0\r\n\r\n"]
        if pieces:
            self._connection.write(self, pieces)
        if not has_more:
            self._connection.end(self)
            self._changed.set()
