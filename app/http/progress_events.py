"""Long work that reports progress as server-sent events; it ends when its client disconnects."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeAlias

from starlette.responses import StreamingResponse

import engine
from app.codec.answers import dump_json
from app.errors import QueueFullError, ServiceError, from_engine
from app.memory.reservation import Reservation, current
from app.serving.dataplane import DataPlane

log = logging.getLogger(__name__)

Report: TypeAlias = Callable[[Mapping[str, Any]], None]
Work: TypeAlias = Callable[[Report, Callable[[], bool]], None]
_MEDIA_TYPE: Final = "text/event-stream"
# Proxies must not buffer events.
_HEADERS: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}
# Documentation of such an answer for FastAPI.
STREAMED: Final[dict[str, Any]] = {"content": {_MEDIA_TYPE: {}}}


class EventStream(StreamingResponse):
    """Stream of events.

    Args:
        events: each as `format_event` returns it.
    """

    def __init__(self, events: AsyncIterator[bytes]) -> None:
        super().__init__(events, media_type=_MEDIA_TYPE, headers=_HEADERS)


class WorkEvents(EventStream):
    """Events of background work, which ends with the client's disconnect, the server's stop or the deadline.

    Args:
        work: the work.
        first: the first event, which is already there.
    """

    def __init__(self, work: BackgroundWork, first: Mapping[str, Any]) -> None:
        super().__init__(work.events(first))
        self._background_work = work

    async def __call__(self, *given: Any) -> None:
        """Send events until the work or the client ends."""
        try:
            await super().__call__(*given)
        finally:
            self._background_work.end()


class BackgroundWork:
    """Work in the server's only thread for measurements.

    Args:
        plane: the models.
        reservation: memory that the work holds; closed when it is over.
        name: of the model, for messages.
        work: called with a function that reports an event and one that returns whether to stop.
        limit_s: time limit.
    """

    def __init__(self, plane: DataPlane, reservation: Reservation, name: str, work: Work, limit_s: float) -> None:
        self._plane = plane
        self._name = name
        self._work = work
        self._queue: asyncio.Queue[Mapping[str, Any] | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._run(time.monotonic() + limit_s))
        self._task.add_done_callback(lambda _: self._over(reservation))

    async def answer(self) -> WorkEvents:
        """Return the answer when there is a first event; an earlier failure is raised, so that it gets its own status.

        Raises:
            ServiceError: the work has failed, or other work is running.
        """
        try:
            first = await self._queue.get()
        except BaseException:
            self.end()
            raise
        if first is None:
            error = self._error()
            raise error if error is not None else RuntimeError("the work ended without an event, expected one")
        return WorkEvents(self, first)

    async def events(self, first: Mapping[str, Any]) -> AsyncIterator[bytes]:
        """Yield events until the work ends; a failure is the last event."""
        event: Mapping[str, Any] | None = first
        while event is not None:
            yield _format_event(event)
            event = await self._queue.get()
        error = self._error()
        if error is not None:
            yield _format_event({"event": "error", **error.body()["error"]})

    def end(self) -> None:
        """Cancel the work, since the client has disconnected."""
        self._task.cancel()

    def _over(self, reservation: Reservation) -> None:
        reservation.close()
        self._queue.put_nowait(None)

    async def _run(self, deadline: float) -> None:
        try:
            await self._plane.trials.call(self._do, deadline)
        except QueueFullError as exc:
            if exc.detail.get("limit") != 0:  # for lack of memory
                raise
            message = "another measurement or comparison is running, expected one at a time"
            raise QueueFullError(message) from None

    def _do(self) -> None:
        def is_over() -> bool:
            return self._task.done() or self._plane.is_draining

        reservation = current()
        assert reservation is not None  # the request's; tasks and schedulers pass it on
        with reservation.working(is_over):
            try:
                self._work(self._report, is_over)
            except engine.EngineError as exc:
                error = from_engine(exc, self._name)
                if error.status >= 500 and not is_over():
                    log.error("a measurement of model '%s' failed: %s", self._name, exc, exc_info=exc)
                raise error from None

    def _report(self, event: Mapping[str, Any]) -> None:
        with suppress(RuntimeError):  # the loop may be closed by now
            self._loop.call_soon_threadsafe(self._queue.put_nowait, event)

    def _error(self) -> ServiceError | None:
        if self._task.cancelled():
            return None
        exc = self._task.exception()
        if exc is None or isinstance(exc, ServiceError):
            return exc
        raise exc


def _format_event(event: Mapping[str, Any]) -> bytes:
    return format_event(event["event"], event)


def format_event(name: str, data: Any) -> bytes:
    """Return one event with its data as JSON."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), dump_json(data))
