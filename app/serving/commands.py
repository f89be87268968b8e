"""Commands that change a server: done here, and where it has several workers by all of them.

A command has a subject. Commands of one subject follow one another in the same order everywhere, and a worker that
takes the place of another one begins with what the last command of each subject has left.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

Arguments: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What is to be done; all of it is JSON.

    Args:
        limit_s: how long one worker may take for it.
    """

    verb: str
    subject: str
    arguments: Arguments
    limit_s: float


@dataclass(frozen=True, slots=True)
class CommandHandler:
    """How a verb is done.

    Args:
        do: does it in a process that serves; returns the arguments that a worker is to begin with that comes later.
        begin: the same in one that has yet to begin.
    """

    do: Callable[[Arguments], Awaitable[Arguments]]
    begin: Callable[[Arguments], None]


class Channel(Protocol):
    """The way to the other workers."""

    async def send(self, command: Command) -> None:
        """Have a command done by all workers, this one first.

        Raises:
            ServiceError: what one of them says; the first of them, before any other has begun.
        """
        ...


class Commands:
    """What a server's process can be told to do."""

    def __init__(self) -> None:
        self._handlers: dict[str, CommandHandler] = {}
        self._channel: Channel | None = None

    def on(self, verb: str, handler: CommandHandler) -> None:
        """Know how a verb is done."""
        self._handlers[verb] = handler

    def join(self, channel: Channel, begun: Iterable[Command]) -> None:
        """Be one of several workers, and begin with what the others were told before."""
        self._channel = channel
        for command in begun:
            self._handlers[command.verb].begin(command.arguments)

    async def make(self, command: Command) -> None:
        """Have a command done by all.

        Raises:
            ServiceError: it cannot be done, or not by all of them.
        """
        if self._channel is None:
            await self.do(command)
        else:
            await self._channel.send(command)

    async def do(self, command: Command) -> Arguments:
        """Do it here, and nowhere else; what another one is to begin with.

        Raises:
            ServiceError: it cannot be done.
        """
        return await self._handlers[command.verb].do(command.arguments)
