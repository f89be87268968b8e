"""Who answers while the server is still being imported: that the process lives, and that nothing is ready yet.

A process listens before it imports what it serves with, which takes most of its start. From then on probes and clients
are told where it stands, each on a connection that ends with its answer; those that come once the server itself takes
connections are the server's. This module imports next to nothing.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from app.process.tls import tls_context
from app.settings import Settings, SettingsError

BACKLOG: Final = 2048
# What the head of a request may take, how long a client may take for its request and for its answer, and how many may
# do so at once: this is for a second.
_HEAD: Final = 16 * 1024
_PATIENCE_S: Final = 5.0
_MOST: Final = 256
_TARGET: Final = re.compile(rb"[A-Z]{1,16} (/[!-~]{0,1000}) HTTP/1\.[01]\r\n")
_LIVE: Final = (b"/health/live", b"/v2/health/live")
_MESSAGE: Final = b"the server is starting"
_ERROR: Final = b'{"code":"not_ready","message":"not ready: %s"}' % _MESSAGE


class EarlyHealth:
    """Takes connections on a socket that listens, in a thread, until it is closed.

    Raises:
        SettingsError: the certificate cannot be read.
    """

    def __init__(self, listener: socket.socket, settings: Settings) -> None:
        self.listener = listener
        self._tls = tls_context(settings)
        self._retry_after_s = settings.retry_after_s
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._guests: set[asyncio.Task[None]] = set()
        self._is_closing = asyncio.Event()
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="early-health", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take no more connections; those that are there are answered."""
        with suppress(RuntimeError):  # it was closed before
            self._loop.call_soon_threadsafe(self._is_closing.set)
        self._is_closed.wait(_PATIENCE_S)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._is_closed.set()
            self._loop.close()

    async def _serve(self) -> None:
        limit_s, listening = None if self._tls is None else _PATIENCE_S, self.listener.dup()
        server = await asyncio.start_server(
            self._welcome,
            sock=listening,
            backlog=BACKLOG,
            limit=_HEAD,
            ssl=self._tls,
            ssl_handshake_timeout=limit_s,
            ssl_shutdown_timeout=limit_s,
        )
        await self._is_closing.wait()
        # Closed at once, asyncio would forget those it has just taken, and nobody would answer them.
        self._loop.remove_reader(listening)
        self._is_closed.set()
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others)
        server.close()

    async def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # a callback of start_server runs in one
        self._guests.add(task)
        try:
            if len(self._guests) <= _MOST:
                async with asyncio.timeout(_PATIENCE_S):
                    await self._answer(reader, writer)
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            self._guests.discard(task)
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(await reader.readuntil(b"\r\n\r\n"), self._retry_after_s))
        await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
        # An end in the midst of a body could lose the answer.
        while await reader.read(_HEAD):
            pass


def answer(head: bytes, retry_after_s: int) -> bytes:
    """What is said to a request."""
    found = _TARGET.match(head)
    path = b"" if found is None else found[1].partition(b"?")[0]
    lines = b"content-type: application/json\r\nx-content-type-options: nosniff\r\nconnection: close\r\n"
    if found is None:
        status, body = (
            b"400 Bad Request",
            b'{"error":{"code":"invalid_request","message":"the request is not HTTP/1.1"}}',
        )
    elif path in _LIVE:
        status, body = b"200 OK", b'{"live":true}'
    else:
        status, lines = b"503 Service Unavailable", lines + b"retry-after: %d\r\n" % retry_after_s
        body = b'{"error":%s}' % _ERROR
        if path == b"/health/ready":
            body = b'{"ready":false,"error":%s}' % _ERROR
        elif path == b"/v2" or path.startswith(b"/v2/"):
            body = b'{"error":"not ready: %s"}' % _MESSAGE
    lines += b"x-request-id: %b\r\ncontent-length: %d\r\n" % (os.urandom(8).hex().encode(), len(body))
    text = b"HTTP/1.1 %b\r\n%b\r\n" % (status, lines)
    return text if head.startswith(b"HEAD ") else text + body


@contextmanager
def early_health(settings: Settings) -> Iterator[EarlyHealth]:
    """Early health on the address of the settings, closed at the end.

    Raises:
        SettingsError: the address cannot be listened on; the certificate cannot be read.
    """
    with listen(settings) as listener:
        found = EarlyHealth(listener, settings)
        try:
            yield found
        finally:
            found.close()


def why_not(exc: OSError) -> str:
    """Why an address cannot be listened on, without the address, which socket.create_server adds."""
    # Not os.strerror: where the name is none, the errno is of getaddrinfo's own kind.
    return str(exc.strerror).partition(" (while attempting")[0]


def listen(settings: Settings) -> socket.socket:
    """A socket that listens where the settings say.

    Raises:
        SettingsError: the address cannot be listened on.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        listener = socket.create_server((settings.host, settings.port), family=family, backlog=BACKLOG)
    except OSError as exc:
        raise SettingsError(f"cannot listen on {settings.host} port {settings.port}: {why_not(exc)}") from None
    listener.set_inheritable(True)
    return listener
