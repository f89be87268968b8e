"""A server in a thread of this process, and clients that write to its socket byte by byte."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from app.http.server.connection import Connection
from app.process.server import build
from app.process.uvicorn_server import Server
from app.settings import Settings
from tests.patience import PATIENCE_S, until

HOST = b"host: x\r\n"
LIVE = b"GET /health/live HTTP/1.1\r\n" + HOST + b"\r\n"


class Front:
    """Listening server."""

    def __init__(self, server: Server, port: int) -> None:
        self.server = server
        self.port = port

    def connect(self, *, receive_bytes: int | None = None) -> socket.socket:
        made = socket.socket()
        if receive_bytes is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        made.settimeout(PATIENCE_S)
        made.connect(("127.0.0.1", self.port))
        return made

    def ask(self, *pieces: bytes) -> list[tuple[int, dict[str, str], Any]]:
        """Return all answers on one connection, until the server closes it or is silent."""
        with self.connect() as connection:
            return answers(send(connection, *pieces))

    def is_live(self) -> bool:
        with self.connect() as connection:
            return b'{"live":true}' in send(connection, LIVE.replace(HOST, HOST + b"connection: close\r\n"))

    @property
    def connections(self) -> list[Connection]:
        return [each for each in self.server.server_state.connections if isinstance(each, Connection)]

    @property
    def open(self) -> int:
        """Return the number of connections, after those being closed are gone."""
        return len(self.server.server_state.connections)


def send(connection: socket.socket, *pieces: bytes) -> bytes:
    """Return everything that the server sends until it closes the connection."""
    try:
        for piece in pieces:
            connection.sendall(piece)
    except OSError:
        pass  # it has said enough before it had read everything
    return drain(connection)


def drain(connection: socket.socket) -> bytes:
    received = bytearray()
    try:
        while data := connection.recv(1 << 16):
            received += data
    except ConnectionResetError:
        pass
    return bytes(received)


def answers(received: bytes) -> list[tuple[int, dict[str, str], Any]]:
    """Return status, headers and JSON of each answer; fail on anything else."""
    found = []
    while received:
        head, _, received = received.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        status = int(re.fullmatch(r"HTTP/1\.1 (\d{3}) [A-Za-z -]+", first)[1])  # type: ignore[index]
        if status == 100:
            continue
        headers = {key.lower(): value for key, _, value in (line.partition(": ") for line in lines)}
        length = int(headers["content-length"])
        body, received = received[:length], received[length:]
        assert len(body) == length and headers["x-content-type-options"] == "nosniff"
        found.append((status, headers, json.loads(body) if "json" in headers["content-type"] else body))
    return found


@contextmanager
def listening(store: Path, **settings: Any) -> Iterator[Front]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = build(Settings(store=store, **settings), None)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            until(lambda: server.started and server.plane.loaded.is_set())
            yield Front(server, listener.getsockname()[1])
        finally:
            server.should_exit = server.force_exit = True
            thread.join(PATIENCE_S)
