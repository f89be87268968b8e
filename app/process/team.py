"""A worker's side of the line to its parent, and through it to all workers (switchboard.py has the other side)."""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final

from app.errors import InternalError, ModelNotReadyError, RetryLaterError, ServiceError
from app.metrics.meter import Meter
from app.process.scoreboard import Place
from app.process.switchboard import packed, receive, receive_first
from app.serving.commands import Command, Commands
from app.serving.dataplane import DataPlane

log = logging.getLogger(__name__)

# The parent has nothing else to do than to answer.
_START_S: Final = 30.0
# All do it side by side, but the first one before the others; commands of its subject that came before are waited for.
_TIMES: Final = 4


class Team:
    """The line of one worker.

    Args:
        line: of ``Switchboard.connect``.

    Attributes:
        begun: the commands that this worker begins with.

    Raises:
        OSError: the parent says nothing.
    """

    def __init__(self, line: socket.socket) -> None:
        line.settimeout(_START_S)
        self.begun = [Command(**each) for each in receive_first(line)["begun"]]
        line.setblocking(False)
        self._line = line
        self._numbers = itertools.count()
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._doing: set[asyncio.Task[None]] = set()
        self._writer: asyncio.StreamWriter | None = None

    async def start(self, commands: Commands, publish: Callable[[], Awaitable[None]]) -> None:
        """Do from now on what this and the other workers are told.

        Args:
            publish: awaited when something was done, before that is said: leaves figures where the others find them.
        """
        reader, self._writer = await asyncio.open_unix_connection(sock=self._line)
        self._listening = asyncio.create_task(self._listen(reader, commands, publish))

    async def close(self) -> None:
        """Hear no more; what is being done goes on to its end."""
        if self._writer is not None:
            self._writer.close()
            await self._listening
            await self._writer.wait_closed()

    async def send(self, command: Command) -> None:
        """Have a command done by all workers, this one first.

        Raises:
            ServiceError: what one of them says; the first of them, before any other has begun.
        """
        number, future = next(self._numbers), asyncio.get_running_loop().create_future()
        self._asked[number] = future
        try:
            self._send({"ask": number, "command": asdict(command)})
            answer = await asyncio.wait_for(future, _TIMES * command.limit_s)
        except TimeoutError:
            raise ModelNotReadyError("the other workers do not answer", retry_after_s=1) from None
        finally:
            del self._asked[number]
        if "error" in answer:
            raise as_error(answer["error"])

    def _send(self, message: dict[str, Any]) -> None:
        if self._writer is None or self._writer.is_closing():
            raise ModelNotReadyError("this worker is starting or stopping", retry_after_s=1)
        self._writer.write(packed(message))

    async def _listen(
        self, reader: asyncio.StreamReader, commands: Commands, publish: Callable[[], Awaitable[None]]
    ) -> None:
        while (message := await receive(reader)) is not None:
            if "do" in message:
                task = asyncio.create_task(self._do(message["do"], Command(**message["command"]), commands, publish))
                self._doing.add(task)
                task.add_done_callback(self._doing.discard)
            elif (future := self._asked.get(message["answered"])) is not None and not future.done():
                future.set_result(message)
        for future in self._asked.values():
            if not future.done():
                future.set_result({"error": as_json(ModelNotReadyError("the server is stopping", retry_after_s=1))})

    async def _do(
        self, number: int, command: Command, commands: Commands, publish: Callable[[], Awaitable[None]]
    ) -> None:
        answer: dict[str, Any] = {"done": number}
        try:
            answer["begin"] = dict(await commands.do(command))
            await publish()
        except ServiceError as error:
            answer["error"] = as_json(error)
        except Exception:
            log.exception("%s", command.verb)
            answer["error"] = as_json(InternalError("internal error; the server's log says more"))
        with suppress(ModelNotReadyError):  # it ends meanwhile
            self._send(answer)


def as_json(error: ServiceError) -> dict[str, Any]:
    """An error, for another process."""
    retry_after_s = error.retry_after_s if isinstance(error, RetryLaterError) else None
    return {"code": error.code, "message": error.message, "retry_after_s": retry_after_s}


def as_error(said: dict[str, Any]) -> ServiceError:
    """What ``as_json`` was made of."""
    known = {cls.code: cls for cls in _tree(ServiceError)}
    cls = known.get(said["code"], InternalError)
    if issubclass(cls, RetryLaterError):
        return cls(said["message"], retry_after_s=said["retry_after_s"])
    return cls(said["message"])


def _tree(root: type[ServiceError]) -> Iterator[type[ServiceError]]:
    """A class and those below it; of those that share a code the one nearest to the root comes last."""
    for cls in root.__subclasses__():
        yield from _tree(cls)
    yield root


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """The other workers, as one sees them.

    Args:
        figures: where they leave what /metrics tells.
        tallies: where they leave what their models have done.
        team: the way to have something done by all.
    """

    index: int
    figures: Place
    tallies: Place
    team: Team

    def join(self, plane: DataPlane, meter: Meter) -> None:
        """Be one of them: count on, begin with what they were told, and tell of all."""
        meter.join(self.figures, self.index)
        plane.store.tallies.begin(self.tallies.own())
        plane.store.tallies.others = self.tallies.others
        plane.store.tallies.publish = lambda: self.leave_tallies(plane)
        plane.commands.join(self.team, self.team.begun)

    async def publish(self, plane: DataPlane, meter: Meter) -> None:
        """Let the others tell of this one. Figures of many models take long, so they are read in a thread."""
        await asyncio.to_thread(meter.publish)
        self.leave_tallies(plane)

    def leave_tallies(self, plane: DataPlane) -> None:
        """Leave what models have counted where the others find it."""
        self.tallies.write(plane.store.tallies.to_bytes(plane.store.entries))
