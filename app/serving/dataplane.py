"""Operations on models, independent of HTTP and gRPC: inference, metadata, readiness, graphs.

Work that takes time runs in the threads of a scheduler; the event loop only does bookkeeping.

Drawing a graph of thousands of operators takes seconds and many times its file's size in memory. So graphs are drawn
one at a time, and the memory is charged to the budget.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple, TypeVar

import engine
from app.errors import ConfigError, InferenceFailedError, ServiceError, from_engine
from app.memory.machine import Trimmer, budget_bytes
from app.memory.reservation import MemoryBudget, charged, would_fit
from app.messages import cut
from app.models.model import Model
from app.models.registry.commands import ModelCommands
from app.models.registry.store import Store
from app.models.registry.version import State, Version
from app.models.registry.watch import Watcher
from app.models.request import InferRequest, InferResult
from app.models.servable import Servable
from app.models.statistics import account
from app.remote import open_store
from app.scheduling.job import DEFAULT_PRIORITY, Work
from app.scheduling.scheduler import Scheduler
from app.serving.control import Commands, Control
from app.settings import Settings
from app.thread_limits import ThreadBudget, thread_budget

log = logging.getLogger(__name__)
T = TypeVar("T")
# Outcome in the statistics of a request whose client left before the answer.
CANCELLED: Final = "cancelled"
# How long loads may take to react when the server stops.
STOP_LOADING_S: Final = 3.0
# Most names of models in the reason why the server is not ready.
MAX_NAMES: Final = 10


class Answer(NamedTuple):
    """Result of a request, with the model and version that computed it."""

    model: str
    version: int
    result: InferResult


class DataPlane:
    """Models and schedulers of one server. ``start`` loads the store in the background, ``close`` ends everything."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.budget: ThreadBudget = thread_budget(settings.threads, settings.workers)
        self.memory = MemoryBudget(
            budget_bytes(settings.max_bytes_in_flight, settings.workers),
            on_large_return=Trimmer(),
        )
        self.store = Store(settings, self.budget.threads)
        self.remote = open_store(settings)
        interval_s = settings.reload_interval_s if settings.model_control == "poll" else 0.0
        self.watcher = Watcher(self.store, settings.store_folder, settings.model_name, interval_s)
        self.commands = Commands()
        self.control = Control(ModelCommands(self.store, self.watcher, settings), settings, self.commands)
        self.is_draining = False
        self.loaded = asyncio.Event()
        self._loader: threading.Thread | None = None
        # For work that belongs to no model, such as parsing a large body that contains the model's name.
        threads = self.budget.threads
        self._offloading = Scheduler("server", threads=threads, runs=threads, queue=settings.max_queue)
        # One at a time, so that measurements share the machine with requests only.
        self.trials = Scheduler("trials", threads=1, runs=1, queue=0)
        self._drawings = Scheduler("graph", threads=1, runs=1, queue=settings.max_queue)

    async def start(self) -> None:
        """Begin to load the models; meanwhile the server is live, but not ready."""
        # A daemon: a load that hangs must not keep the process from ending.
        self._loader = threading.Thread(target=self._load, args=(asyncio.get_running_loop(),), daemon=True)
        self._loader.start()

    async def close(self) -> None:
        """Stop loading, drop what waits, let running requests end."""
        self.is_draining = self.control.is_closed = True
        if self.remote is not None:
            self.remote.close()
        self.watcher.close()
        self.store.close()
        self._offloading.close()
        self.trials.close()
        self._drawings.close()
        if self._loader is not None:
            # Loads were asked to stop. A load that hangs delays the shutdown by at most this time.
            with suppress(TimeoutError):
                await asyncio.wait_for(self.loaded.wait(), min(STOP_LOADING_S, self.settings.shutdown_timeout_s))

    @property
    def is_busy(self) -> bool:
        """Return whether a thread is working; a cancelled run stops only between operators."""
        schedulers = [version.scheduler for entry in self.store.entries for version in entry.versions]
        others = self._drawings, self._offloading, self.trials
        return any(scheduler.is_busy for scheduler in (*schedulers, *others))

    @property
    def is_quiet(self) -> bool:
        """Return whether there is no request for any model."""
        schedulers = [version.scheduler for entry in self.store.entries for version in entry.versions]
        return all(scheduler.is_empty for scheduler in schedulers)

    @property
    def is_loading(self) -> bool:
        """Return whether a thread is loading a model or hangs in a load."""
        return self.store.is_loading or (self._loader is not None and self._loader.is_alive())

    def unready_reason(self) -> str | None:
        """Return why the server is not ready, or None when all models that it waits for are ready.

        These are the models that the setting ``required`` names, or else all that were in the store at the start.
        """
        if self.is_draining:
            return "the server is stopping"
        if self.store.problem is not None:
            return self.store.problem
        if self.settings.required and self.store.is_begun.is_set():
            return self._missing()
        if not self.store.is_loaded:
            problem = None if self.remote is None or self.store.is_begun.is_set() else self.remote.problem
            return self._loading() if problem is None else problem
        failed = [entry.name for entry in self.store.entries if entry.state is State.FAILED and not entry.is_late]
        if failed:
            return f"failed to load: {', '.join(failed)}"
        if not self.store.entries and self.settings.model_control != "explicit":
            return "the store has no models"
        if self.store.default_name is not None and self.store.default_name not in {e.name for e in self.store.entries}:
            return f"the default model '{self.store.default_name}' is not in the store"
        return None

    def _missing(self) -> str | None:
        """Return which required models are not ready, and their state."""
        states = {name: self.store.find(name) for name in self.settings.required}
        missing = [
            f"'{cut(name)}' is {'not in the store' if entry is None else entry.state}"
            for name, entry in states.items()
            if entry is None or entry.state is not State.READY
        ]
        return f"required models: {', '.join(missing[:MAX_NAMES])}" if missing else None

    def _loading(self) -> str:
        names = [entry.name for entry in self.store.entries if entry.state is State.LOADING]
        shown = f": {', '.join(names[:MAX_NAMES])}" if names else ""
        return f"the models are loading{shown}{', ...' if len(names) > MAX_NAMES else ''}"

    def deadline(self, limit_s: float | None = None) -> float:
        """Return the deadline of a request that arrives now, on time.monotonic()'s clock.

        limit_s: time limit that the request asks for.
        """
        usual_s = self.settings.request_timeout_s
        return time.monotonic() + (usual_s if limit_s is None else min(limit_s, usual_s))

    async def offload(self, work: Callable[[], T], deadline: float) -> T:
        """Return the result of work that belongs to no model, done in a thread."""
        return await self._offloading.call(work, deadline)

    async def draw(self, cost: int, work: Callable[[], bytes], deadline: float) -> bytes:
        """Return a drawing, made in a thread when those before it are done.

        Args:
            cost: bytes that drawing takes, charged to the current request while it is drawn.
            work: makes the drawing.
            deadline: on time.monotonic()'s clock.

        Raises:
            QueueFullError, RequestTooLargeError: too many drawings wait, or memory is short.
            DeadlineExceededError: it was not done in time.
        """

        def drawn() -> bytes:
            with charged(cost):
                return work()

        would_fit(cost)
        return await self._drawings.call(drawn, deadline)

    def answer_now(
        self, version: Version, request: InferRequest, encode: Callable[[Answer], T], deadline: float
    ) -> T | None:
        """Run a request and encode its answer on the event loop if that takes no time; otherwise return None.

        Raises:
            ServiceError: the request failed.
        """
        if not request.is_light:
            return None
        with _Accounting(version) as model:
            step, sequences = request.sequence, model.sequences
            if step is not None and sequences is not None:
                request = request._replace(turn=sequences.turn_now(step))
                if request.turn is None:
                    return None
            found: tuple[tuple[T, InferResult]] | None = version.scheduler.run_now(
                _call(version, model, request, encode), deadline
            )
            if found is not None and request.turn is not None and step is not None and sequences is not None:
                sequences.end_now(step, request.turn)
        return None if found is None else _counted(version, *found[0])

    async def infer_version(
        self, version: Version, request: InferRequest, encode: Callable[[Answer], T], deadline: float
    ) -> T:
        """Run a request and encode its answer in the model's threads.

        Raises:
            ServiceError: the request failed.
        """
        with _Accounting(version) as model:
            if request.sequence is None or model.sequences is None:
                found = await _run(version, model, request, encode, deadline)
            else:
                async with model.sequences.turn(request.sequence, self.memory, deadline) as turn:
                    found = await _run(version, model, request._replace(turn=turn), encode, deadline)
        return _counted(version, *found)

    def admit(self, version: Version, deadline: float, priority: int = DEFAULT_PRIORITY) -> None:
        """Refuse a request before its body is parsed if the model's queue would refuse it.

        Raises:
            ServiceError: the refusal.
        """
        try:
            version.scheduler.check(deadline, priority)
        except ServiceError as error:
            version.statistics.failed(error.code, 0.0)
            raise

    async def run_on_model(self, version: Version, work: Callable[[Model], T], deadline: float) -> T:
        """Return the result of work that uses the model's graph, queued with its requests and done in its threads.

        Raises:
            InvalidRequestError: the model is a pipeline.
        """
        model = version.network
        with _Accounting(version):
            return await version.scheduler.call(partial(work, model), deadline)

    def _load(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            if self.remote is not None:
                self.remote.begin()
            if not self.is_draining:
                self.store.load()
        except Exception:  # a bug must not leave the server waiting for its models for ever
            log.exception("failed to load the store")
            self.store.problem = "internal error while loading the store; see the server's log"
            self.store.is_begun.set()
        self.watcher.start()
        with suppress(RuntimeError):  # the loop may be closed by now
            loop.call_soon_threadsafe(self.loaded.set)


class _Accounting:
    """Context of a request on a version: its failure is counted, logged, and converted to a ServiceError."""

    __slots__ = ("_began", "_version")

    def __init__(self, version: Version) -> None:
        self._version = version
        self._began = time.perf_counter()

    def __enter__(self) -> Servable:
        version = self._version
        if version.model is None:  # Store.version returns ready versions only
            raise InferenceFailedError(f"model '{version.name}' is not loaded")
        if (asked := account.get()) is not None:
            asked.model, asked.version, asked.began = version.name, version.number, self._began
        return version.model

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: object) -> None:
        if exc is None:
            return
        version, seconds = self._version, time.perf_counter() - self._began
        if isinstance(exc, asyncio.CancelledError):
            version.statistics.failed(CANCELLED, seconds)
        elif isinstance(exc, ServiceError):
            version.statistics.failed(exc.code, seconds)
        elif isinstance(exc, (engine.EngineError, ConfigError)):
            error = from_engine(exc, version.name)
            if error.status >= 500:
                log.error("model '%s' version %d failed: %s", version.name, version.number, exc, exc_info=exc)
            version.statistics.failed(error.code, seconds)
            raise error from exc


def _run(
    version: Version, model: Servable, request: InferRequest, encode: Callable[[Answer], T], deadline: float
) -> Awaitable[tuple[T, InferResult]]:
    return version.scheduler.run(_call(version, model, request, encode), deadline, request.priority)


def _call(version: Version, model: Servable, request: InferRequest, encode: Callable[[Answer], T]) -> Work:
    return model.call(request, partial(_encoded, encode, version.name, version.number))


def _counted(version: Version, encoded: T, result: InferResult) -> T:
    """Count a successful request and return its answer."""
    version.statistics.succeeded(result.timing, result.items, result.batch, is_first=result.is_first)
    if version.model is not None:
        version.model.use()
    if (asked := account.get()) is not None:
        asked.items, asked.timing = result.items, result.timing
    return encoded


def _encoded(encode: Callable[[Answer], T], model: str, version: int, result: InferResult) -> T:
    return encode(Answer(model=model, version=version, result=result))
