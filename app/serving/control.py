"""Commands that change all workers of a server, and loading and unloading of models: one call per model at a time.

A call that has begun is completed even if its client leaves.

A command has a subject. Commands of one subject are executed in the same order by all workers, and a worker that
replaces another begins with the last command of each subject.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from app.errors import ModelNotFoundError, ModelNotReadyError
from app.messages import safe_text
from app.models.folder.layout import is_model_name
from app.models.registry.commands import ModelCommands
from app.settings import Settings

Arguments: TypeAlias = Mapping[str, Any]
T = TypeVar("T")
# Commands that are executed at a time; more wait. Models load in parallel as far as memory allows (loader_pool.py).
MAX_CALLS: Final = 16
# A load may wait for others, each of which may take the whole load_timeout_s.
LOADS: Final = 3
# Seconds added to the time limit of a request, for workers that have just started.
_MARGIN_S: Final = 60.0
_LOAD: Final = "load"
_UNLOAD: Final = "unload"


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


class Control:
    """Loads and unloads models."""

    def __init__(self, demand: ModelCommands, settings: Settings, commands: Commands) -> None:
        self._demand = demand
        self._settings = settings
        self._places = asyncio.Semaphore(MAX_CALLS)
        self._discovery = asyncio.Semaphore(1)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_closed = False
        self._commands = commands
        commands.on(_LOAD, CommandHandler(self._do_load, partial(self._begin, True)))
        commands.on(_UNLOAD, CommandHandler(self._do_unload, partial(self._begin, False)))

    async def load(self, name: str, config: str | None = None) -> None:
        """Load a model from the store beside the version that is being served, and return when it serves.

        Args:
            name: of the model.
            config: JSON that replaces its config.toml.

        Raises:
            ModelNotFoundError: the store has no such model.
            ModelLoadError: it cannot be served; what was served before stays.
            ModelNotReadyError: the server is stopping, or its settings do not allow loading.
        """
        self._check(name)
        arguments = {"name": name, "config": config}
        limit_s = LOADS * self._settings.load_timeout_s
        await self._commands.make(Command(verb=_LOAD, subject=f"model/{name}", arguments=arguments, limit_s=limit_s))

    async def unload(self, name: str) -> None:
        """Stop serving a model, and return when its last request has ended or the time limit has passed.

        Raises:
            ModelNotFoundError: there is no such model.
            ModelNotReadyError: the server is stopping, or its settings do not allow unloading.
        """
        self._check(name)
        limit_s = self._settings.request_timeout_s + _MARGIN_S
        await self._commands.make(
            Command(verb=_UNLOAD, subject=f"model/{name}", arguments={"name": name}, limit_s=limit_s)
        )

    async def discover(self) -> None:
        """Update the list of models in the store when the server does not poll the store."""
        if self._settings.model_control == "explicit":
            async with self._discovery:
                await in_thread(self._demand.look)

    async def _do_load(self, arguments: Arguments) -> Arguments:
        name = arguments["name"]
        await self._exclusively(name, partial(self._demand.load, name, arguments["config"]))
        return {**arguments, "mark": await in_thread(partial(self._demand.mark, name))}

    async def _do_unload(self, arguments: Arguments) -> Arguments:
        name = arguments["name"]
        await self._exclusively(name, partial(self._demand.unload, name))
        return {**arguments, "mark": await in_thread(partial(self._demand.mark, name))}

    def _begin(self, is_wanted: bool, arguments: Arguments) -> None:
        """Apply a command that other workers executed before this one started."""
        self._demand.begin(arguments["name"], is_wanted, arguments["mark"], arguments.get("config"))

    def _check(self, name: str) -> None:
        if self._settings.model_control == "none":
            raise ModelNotReadyError("explicit model load / unload is not allowed: model_control is none")
        if self.is_closed:
            raise ModelNotReadyError("the server is stopping")
        if not is_model_name(name):
            raise ModelNotFoundError(f"model '{safe_text(name, 100)}' is not in the store")

    async def _exclusively(self, name: str, work: Callable[[], None]) -> None:
        """Work on a model when no other call does, and complete the work even if the client leaves."""

        async def locked() -> None:
            lock = self._locks.setdefault(name, asyncio.Lock())
            async with lock, self._places:
                await in_thread(work)

        task = asyncio.create_task(locked())
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        await asyncio.shield(task)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as retrieved, since the client may have left


async def in_thread(work: Callable[[], T]) -> T:
    """Return the result of work in a daemon thread, which does not keep the process from ending."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(tell: Callable[[Any], None], what: object) -> None:
        if not future.done():
            tell(what)

    def run() -> None:
        tell: Callable[[Any], None] = future.set_result
        what: object
        try:
            what = work()
        except BaseException as exc:
            tell, what = future.set_exception, exc
        with suppress(RuntimeError):  # the loop may be closed by now
            loop.call_soon_threadsafe(settle, tell, what)

    threading.Thread(target=run, name="control", daemon=True).start()
    return await future
