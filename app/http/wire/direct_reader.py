"""Bytes of a body read from the socket straight to where they stay.

While one of these is the transport's protocol, asyncio asks it where the next bytes go; every other event of the
transport is passed on to the connection.
"""

from __future__ import annotations

import asyncio
from typing import Protocol


class Flow(Protocol):
    """uvicorn's flow control, as far as reading goes."""

    def pause_reading(self) -> None:
        """Read nothing from the socket until ``resume_reading``."""
        ...

    def resume_reading(self) -> None:
        """Read on."""
        ...


class ConnectionEvents(Protocol):
    """What asyncio tells a connection, but for the bytes that were read."""

    def eof_received(self) -> None:
        """The client sends no more."""
        ...

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        ...

    def pause_writing(self) -> None:
        """The transport's buffer is full: the client reads slowly."""
        ...

    def resume_writing(self) -> None:
        """The transport's buffer has room again."""
        ...


class DirectReader(asyncio.BufferedProtocol):
    """Base of the protocols that read into memory they are given.

    Args:
        connection: told of everything but bytes.
        room: where the next bytes go.
    """

    def __init__(self, connection: ConnectionEvents, room: memoryview) -> None:
        self._connection = connection
        self._room = room

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        return self._room

    def advance(self, count: int) -> bool:
        """So many bytes lie where they belong; returns whether the room is full."""
        self._room = self._room[count:]
        return not self._room

    def eof_received(self) -> None:
        """Passed on to the connection, as all that follows."""
        self._connection.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        """The transport's buffer is full."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """The transport's buffer has room again."""
        self._connection.resume_writing()
