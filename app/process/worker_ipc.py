"""Commands that all workers of a server execute: the parent's side (WorkerBroadcast) and the workers' (WorkerChannel).

The worker that received a request executes the command first; if it fails there, no other worker tries. Commands of one
subject are executed one after the other. The last command of each subject is kept for workers that start later. The
parent's side runs in a thread with its own event loop.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final
from weakref import WeakValueDictionary

import orjson

from app.errors import InternalError, ModelNotReadyError, ServiceError
from app.metrics.collector import MetricsCollector
from app.process.workers import ScoreboardSlot
from app.serving.control import Command, Commands
from app.serving.dataplane import DataPlane

log = logging.getLogger(__name__)

Message = dict[str, Any]
_GONE: Final[Message] = {"is_gone": True}
# Longer messages indicate a broken connection.
MAX_BYTES: Final = 1 << 28
_LENGTH: Final = struct.Struct("<I")


class _Line:
    """Parent's connection to one worker."""

    def __init__(self, index: int, writer: asyncio.StreamWriter) -> None:
        self.index = index
        self._writer = writer
        self._numbers = itertools.count()
        self._asked: dict[int, asyncio.Future[Message]] = {}

    def send(self, message: Message) -> None:
        """Send a message, unless the worker has ended."""
        if not self._writer.is_closing():
            self._writer.write(packed(message))

    async def do(self, command: Message) -> Message:
        """Have the worker execute a command, and return its answer or its failure."""
        number, future = next(self._numbers), asyncio.get_running_loop().create_future()
        self._asked[number] = future
        try:
            if self._writer.is_closing():
                return _GONE
            self.send({"do": number, "command": command})
            return await asyncio.wait_for(future, command["limit_s"])
        except TimeoutError:
            return _refusal(f"not done within {command['limit_s']:g} seconds")
        finally:
            del self._asked[number]

    def heard(self, message: Message) -> None:
        """Take an answer of the worker."""
        future = self._asked.get(message["done"])
        if future is not None and not future.done():
            future.set_result(message)

    def close(self) -> None:
        """Fail all pending commands, since the worker has ended."""
        self._writer.close()
        for future in self._asked.values():
            if not future.done():
                future.set_result(_GONE)


class WorkerBroadcast:
    """Parent's connections to all workers."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._lines: dict[int, _Line] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._begun: dict[str, Message] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="broadcast")
        self._thread.start()

    def connect(self, index: int) -> tuple[socket.socket, list[Message]]:
        """Return the arguments of a worker's ``WorkerChannel``; the caller closes its socket after passing it on."""
        ours, theirs = socket.socketpair()
        return theirs, asyncio.run_coroutine_threadsafe(self._attach(index, ours), self._loop).result()

    def close(self) -> None:
        """Close all connections and end the thread."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        for line in self._lines.values():
            line.close()
        while self._tasks:  # each ends with its connection, or with the command it is passing on
            await asyncio.wait(self._tasks)

    async def _attach(self, index: int, ours: socket.socket) -> list[Message]:
        ours.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        if (before := self._lines.get(index)) is not None:
            before.close()
        line = self._lines[index] = _Line(index, writer)
        self._keep(asyncio.create_task(self._serve(line, reader)))
        return list(self._begun.values())

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, line: _Line, reader: asyncio.StreamReader) -> None:
        """Receive messages of a worker until it ends."""
        while (message := await receive(reader)) is not None:
            if "done" in message:
                line.heard(message)
            else:
                self._keep(asyncio.create_task(self._answer(line, message)))
        line.close()
        if self._lines.get(line.index) is line:
            del self._lines[line.index]

    async def _answer(self, line: _Line, message: Message) -> None:
        line.send({"answered": message["ask"], **await self._pass_on(line, message["command"])})

    async def _pass_on(self, asked: _Line, command: Message) -> Message:
        turn = self._locks.setdefault(command["subject"], asyncio.Lock())
        async with turn:
            try:
                return await self._round(asked, command)
            except Exception:  # a bug must not leave a client waiting
                log.exception("command '%s' failed", command["verb"])
                return _refusal("internal error; see the server's log")

    async def _round(self, asked: _Line, command: Message) -> Message:
        """Have a command executed by the worker that received it, then by all others in parallel."""
        first = await asked.do(command)
        if "is_gone" in first:
            return _refusal("the worker that was asked has ended")
        if "error" in first:
            return {"error": first["error"]}
        # Without an await in between: a worker that starts now either begins with the command or is one of the others.
        self._begun.pop(command["subject"], None)
        self._begun[command["subject"]] = {**command, "arguments": first["begin"]}
        others = [line for line in self._lines.values() if line is not asked]
        answers = await asyncio.gather(*(line.do(command) for line in others))
        failed = [
            f"worker {line.index}: {answer['error']['message']}"
            for line, answer in zip(others, answers, strict=True)
            if "error" in answer
        ]
        if failed:
            log.error("command '%s' failed: %s", command["verb"], "; ".join(failed))
            return _refusal("; ".join(failed))
        return {}


def _refusal(message: str) -> Message:
    """Return the answer when workers differ; the client may retry."""
    return {"error": {"code": "not_ready", "message": message}}


def packed(message: dict[str, Any]) -> bytes:
    """Return the bytes of a message."""
    data = orjson.dumps(message)
    return _LENGTH.pack(len(data)) + data


async def receive(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """Return the next message, or None at the end."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > MAX_BYTES:
            return None
        message: dict[str, Any] = orjson.loads(await reader.readexactly(length))
        return message
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


# Multiple of a command's time limit: for earlier commands, for the first worker, and for the others in parallel.
_TIMES: Final = 4


class WorkerChannel:
    """Worker's connection to the parent, and through it to all workers.

    Args:
        line, begun: result of ``WorkerBroadcast.connect``.

    Attributes:
        begun: commands that this worker executes at its start.
    """

    def __init__(self, line: socket.socket, begun: Iterable[Message]) -> None:
        self.begun = [Command(**each) for each in begun]
        line.setblocking(False)
        self._line = line
        self._numbers = itertools.count()
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._doing: set[asyncio.Task[None]] = set()
        self._writer: asyncio.StreamWriter | None = None

    async def start(self, commands: Commands, publish: Callable[[], Awaitable[None]]) -> None:
        """Execute commands from now on.

        Args:
            commands: the handlers of verbs.
            publish: awaited after a command and before its answer; publishes metrics for the other workers.
        """
        reader, self._writer = await asyncio.open_unix_connection(sock=self._line)
        self._listening = asyncio.create_task(self._listen(reader, commands, publish))

    async def close(self) -> None:
        """Receive no more; commands in progress are completed."""
        if self._writer is not None:
            self._writer.close()
            await self._listening
            await self._writer.wait_closed()

    async def send(self, command: Command) -> None:
        """Have a command executed by all workers, this one first.

        Raises:
            ServiceError: of a worker that failed; of this one before any other has begun.
        """
        number, future = next(self._numbers), asyncio.get_running_loop().create_future()
        self._asked[number] = future
        try:
            self._send({"ask": number, "command": asdict(command)})
            answer = await asyncio.wait_for(future, _TIMES * command.limit_s)
        except TimeoutError:
            raise ModelNotReadyError("the other workers did not answer in time") from None
        finally:
            del self._asked[number]
        if "error" in answer:
            raise as_error(answer["error"])

    def _send(self, message: dict[str, Any]) -> None:
        if self._writer is None or self._writer.is_closing():
            raise ModelNotReadyError("this worker is starting or stopping")
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
                future.set_result({"error": as_json(ModelNotReadyError("the server is stopping"))})

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
            log.exception("command '%s' failed", command.verb)
            answer["error"] = as_json(InternalError("internal error; see the server's log"))
        with suppress(ModelNotReadyError):  # this worker is stopping
            self._send(answer)


def as_json(error: ServiceError) -> dict[str, Any]:
    """Return an error as JSON for another process."""
    return {"code": error.code, "message": error.message}


def as_error(data: dict[str, Any]) -> ServiceError:
    """Return the error that ``as_json`` was given."""
    known = {cls.code: cls for cls in _tree(ServiceError)}
    return known.get(data["code"], InternalError)(data["message"])


def _tree(root: type[ServiceError]) -> Iterator[type[ServiceError]]:
    """Yield a class after its subclasses, so that of those that share a code the base class wins."""
    for cls in root.__subclasses__():
        yield from _tree(cls)
    yield root


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerIpc:
    """Connections of one worker to the others.

    Args:
        index: of this worker.
        figures: shared memory for metrics.
        counters: shared memory for the models' statistics.
        channel: for commands that all workers execute.
    """

    index: int
    figures: ScoreboardSlot
    counters: ScoreboardSlot
    channel: WorkerChannel

    def join(self, plane: DataPlane, metrics: MetricsCollector) -> None:
        """Continue the counts of the previous worker of this index, execute earlier commands, report on all."""
        metrics.join(self.figures, self.index)
        plane.store.counters.begin(self.counters.previous())
        plane.store.counters.peers = self.counters.peers
        plane.store.counters.publish = lambda: self.publish_counters(plane)
        plane.commands.join(self.channel, self.channel.begun)

    async def publish(self, plane: DataPlane, metrics: MetricsCollector) -> None:
        """Publish this worker's state for the others. Metrics of many models take long, so a thread collects them."""
        await asyncio.to_thread(metrics.publish)
        self.publish_counters(plane)

    def publish_counters(self, plane: DataPlane) -> None:
        """Publish the models' statistics for the other workers."""
        self.counters.write(plane.store.counters.to_bytes(plane.store.entries))
