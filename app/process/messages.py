"""Messages between workers and their parent: JSON behind its length, on a socket that both ends keep open."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any, Final

import orjson

# Longer ones are no messages of ours.
MAX_BYTES: Final = 1 << 28
_LENGTH: Final = struct.Struct("<I")


def packed(message: dict[str, Any]) -> bytes:
    """The bytes of a message."""
    data = orjson.dumps(message)
    return _LENGTH.pack(len(data)) + data


async def receive(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """The next message; None at the end."""
    try:
        length = _length(await reader.readexactly(_LENGTH.size))
        return _read(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def receive_first(line: socket.socket) -> dict[str, Any]:
    """The first message, before there is an event loop.

    Raises:
        OSError: it does not come within the socket's time.
    """
    return _read(_exactly(line, _length(_exactly(line, _LENGTH.size))))


def _exactly(line: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = line.recv(min(count - len(data), 1 << 20))
        if not piece:
            raise ConnectionResetError("the parent is gone")
        data += piece
    return bytes(data)


def _length(data: bytes) -> int:
    (length,) = _LENGTH.unpack(data)
    if length > MAX_BYTES:
        raise ConnectionResetError(f"a message of {length} bytes, expected at most {MAX_BYTES}")
    return int(length)


def _read(data: bytes) -> dict[str, Any]:
    message: dict[str, Any] = orjson.loads(data)
    return message
