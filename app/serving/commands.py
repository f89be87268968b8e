"""Commands that change a server, executed by every worker.

A command has a subject. Commands of one subject are executed in the same order by all workers, and a worker that
replaces another begins with the last command of each subject.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

Arguments: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """Command to all workers; its fields are JSON.

    Args:
        limit_s: time limit of one worker.
    """

    verb: str
    subject: str
    arguments: Arguments
    limit_s: float


@dataclass(frozen=True, slots=True)
class CommandHandler:
    """Implementation of a verb.

    Args:
        do: executes it in a serving process; returns the arguments for workers that start later.
        begin: executes it in a process that has not begun to serve.
    """

    do: Callable[[Arguments], Awaitable[Arguments]]
    begin: Callable[[Arguments], None]


class Channel(Protocol):
    """Connection to the other workers."""

    async def send(self, command: Command) -> None:
        """Have a command executed by all workers, this one first.

        Raises:
            ServiceError: of a worker that failed; of this one before any other has begun.
        """
        ...


class Commands:
    """Commands that a process can execute."""

    def __init__(self) -> None:
        self._handlers: dict[str, CommandHandler] = {}
        self._channel: Channel | None = None

    def on(self, verb: str, handler: CommandHandler) -> None:
        """Register the handler of a verb."""
        self._handlers[verb] = handler

    def join(self, channel: Channel, begun: Iterable[Command]) -> None:
        """Join other workers, and execute the commands that they executed before."""
        self._channel = channel
        for command in begun:
            self._handlers[command.verb].begin(command.arguments)

    async def make(self, command: Command) -> None:
        """Have a command executed by all workers.

        Raises:
            ServiceError: it failed in this worker or in another.
        """
        if self._channel is None:
            await self.do(command)
        else:
            await self._channel.send(command)

    async def do(self, command: Command) -> Arguments:
        """Execute a command in this process only; return the arguments for workers that start later.

        Raises:
            ServiceError: it failed.
        """
        return await self._handlers[command.verb].do(command.arguments)
