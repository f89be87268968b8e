"""HTTP client for servers of many kinds, on kept sockets."""

from __future__ import annotations

import socket
from collections.abc import Mapping

_PATIENCE_S = 60.0


class Connection:
    """Connection to a server on this machine."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, message: bytes) -> tuple[int, Mapping[str, str], bytes]:
        """Return status, headers and body of an answer.

        Raises:
            OSError: there is none.
        """
        self._socket.sendall(message)
        received = bytearray()
        while b"\r\n\r\n" not in received:
            received += self._more()
        head, _, body = bytes(received).partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {key.strip().lower(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
        pieces, have, length = [body], len(body), int(headers.get("content-length", 0))
        while have < length:
            pieces.append(self._more())
            have += len(pieces[-1])
        return int(first.split()[1]), headers, b"".join(pieces)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _more(self) -> bytes:
        found = self._socket.recv(1 << 18)
        if not found:
            raise ConnectionError("the server closed the connection")
        return found


def is_ready(port: int, path: str) -> bool:
    """Return whether a path answers 200."""
    try:
        connection = Connection(port)
    except OSError:
        return False
    try:
        status, _, _ = connection.ask(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    except OSError:
        return False
    finally:
        connection.close()
    return status == 200
