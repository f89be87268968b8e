"""What stands for a connection where its transport looks for it, and what it hands on to the connection."""

from __future__ import annotations

import asyncio
from typing import Protocol


class Flow(Protocol):
    """Whether what comes is read."""

    def pause_reading(self) -> None:
        """Leave it."""
        ...

    def resume_reading(self) -> None:
        """Read on."""
        ...


class Hearer(Protocol):
    """Who is told what is not for whoever reads."""

    def eof_received(self) -> None:
        """The client sends no more."""
        ...

    def connection_lost(self, exc: Exception | None) -> None:
        """The end."""
        ...

    def pause_writing(self) -> None:
        """The client is slow."""
        ...

    def resume_writing(self) -> None:
        """It goes on."""
        ...


class Standing(asyncio.BufferedProtocol):
    """Base of what reads bytes to their place; all else is for the connection.

    Args:
        hearer: the connection.
    """

    def __init__(self, hearer: Hearer) -> None:
        self._hearer = hearer

    def eof_received(self) -> None:
        """For the connection, as what follows."""
        self._hearer.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """The end."""
        self._hearer.connection_lost(exc)

    def pause_writing(self) -> None:
        """The client is slow."""
        self._hearer.pause_writing()

    def resume_writing(self) -> None:
        """It goes on."""
        self._hearer.resume_writing()
