"""The parent's side of the lines to its workers: commands that change the server are passed on to all of them.

A command is done first by the worker that was asked; where that cannot do it, nobody else tries. Commands of one
subject follow one another, those that say the same and have not begun are one. The last one of each subject is kept for
workers that come later. All of it happens in a thread with an event loop of its own.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import struct
import threading
from typing import Any, Final
from weakref import WeakValueDictionary

import orjson

log = logging.getLogger(__name__)

Message = dict[str, Any]
_GONE: Final[Message] = {"is_gone": True}
# Longer ones are no messages of ours.
MAX_BYTES: Final = 1 << 28
_LENGTH: Final = struct.Struct("<I")


class _Line:
    """To one worker."""

    def __init__(self, index: int, writer: asyncio.StreamWriter) -> None:
        self.index = index
        self._writer = writer
        self._numbers = itertools.count()
        self._asked: dict[int, asyncio.Future[Message]] = {}

    def send(self, message: Message) -> None:
        """Say something; to one that is gone nothing."""
        if not self._writer.is_closing():
            self._writer.write(packed(message))

    async def do(self, command: Message) -> Message:
        """Have the worker do a command, and wait for its answer or its failure."""
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
        """The worker is no more."""
        self._writer.close()
        for future in self._asked.values():
            if not future.done():
                future.set_result(_GONE)


class Switchboard:
    """Lines to all workers."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._lines: dict[int, _Line] = {}
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._waiting: dict[bytes, asyncio.Task[Message]] = {}
        self._begun: dict[str, Message] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="switchboard")
        self._thread.start()

    def connect(self, index: int) -> socket.socket:
        """What a worker is to give to ``Team``; whoever passes it on closes his own."""
        ours, theirs = socket.socketpair()
        asyncio.run_coroutine_threadsafe(self._attach(index, ours), self._loop).result()
        return theirs

    def close(self) -> None:
        """Pass on no more."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        for line in self._lines.values():
            line.close()
        while self._tasks:  # each ends with its line, or with what it is asked by one
            await asyncio.wait(self._tasks)

    async def _attach(self, index: int, ours: socket.socket) -> None:
        ours.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        if (before := self._lines.get(index)) is not None:
            before.close()
        line = self._lines[index] = _Line(index, writer)
        line.send({"begun": list(self._begun.values())})
        self._keep(asyncio.create_task(self._serve(line, reader)))

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, line: _Line, reader: asyncio.StreamReader) -> None:
        """Listen to a worker until it is gone."""
        while (message := await receive(reader)) is not None:
            if "done" in message:
                line.heard(message)
            else:
                self._keep(asyncio.create_task(self._answer(line, message)))
        line.close()
        if self._lines.get(line.index) is line:
            del self._lines[line.index]

    async def _answer(self, line: _Line, message: Message) -> None:
        command = message["command"]
        same = orjson.dumps(command)
        if (waiting := self._waiting.get(same)) is None:
            waiting = self._waiting[same] = asyncio.create_task(self._pass_on(line, command, same))
        line.send({"answered": message["ask"], **await waiting})

    async def _pass_on(self, asked: _Line, command: Message, same: bytes) -> Message:
        turn = self._turns.setdefault(command["subject"], asyncio.Lock())
        async with turn:
            del self._waiting[same]  # who asks from now on wants it done once more
            try:
                return await self._round(asked, command)
            except Exception:  # a fault of ours must not leave a client waiting
                log.exception("%s", command["verb"])
                return _refusal("internal error; the server's log says more")

    async def _round(self, asked: _Line, command: Message) -> Message:
        """Have a command done by the worker that was asked, then by all others at once."""
        first = await asked.do(command)
        if "is_gone" in first:
            return _refusal("the worker that was asked has ended")
        if "error" in first:
            return {"error": first["error"]}
        # In this order, without a pause: a worker that comes now begins with it, or is one of the others.
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
            log.error("%s: %s", command["verb"], "; ".join(failed))
            return _refusal("; ".join(failed))
        return {}


def _refusal(message: str) -> Message:
    """What is told when workers differ: it may be tried again."""
    return {"error": {"code": "not_ready", "message": message, "retry_after_s": 1}}


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
