"""A request on its way through a model, from one step to the next."""

from __future__ import annotations

import asyncio
import contextvars
import enum
import time
import traceback
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

import engine
from app.memory.reservation import current

# Priority of requests that name none; 1 comes first.
DEFAULT_PRIORITY: Final = 10


class CancelToken:
    """Cancellation of work in a thread: by its client, or by its deadline.

    Args:
        deadline: on time.monotonic()'s clock.
    """

    __slots__ = ("_is_cancelled", "deadline")

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self._is_cancelled = False

    def cancel(self) -> None:
        """Cancel the work; its result is no longer needed."""
        self._is_cancelled = True

    def is_cancelled(self) -> bool:
        """Return whether the work may stop."""
        return self._is_cancelled or time.monotonic() > self.deadline


def forget_locals(exc: BaseException | None) -> None:
    """Clear the frames of an exception and of its causes, so that what they hold is freed in this thread."""
    seen: set[int] = set()
    while exc is not None and id(exc) not in seen:
        seen.add(id(exc))
        traceback.clear_frames(exc.__traceback__)
        exc = exc.__cause__ or exc.__context__


@dataclass(frozen=True, slots=True)
class Batches:
    """Rule by which requests of a group may share runs.

    Args:
        sizes: compiled batch sizes, rising.
        delay_s: how long a request may wait for others to share its run.
    """

    sizes: tuple[int, ...]
    delay_s: float = 0.0

    @property
    def most(self) -> int:
        """Return the largest number of items in a run."""
        return self.sizes[-1]


@dataclass(frozen=True, slots=True)
class RunSpec:
    """Requirements of a prepared request for its run.

    Args:
        items: images, or rows of a batch; 0 for work that is not a request.
        group: requests of the same group may share a run; None for a request that runs alone.
        batches: how the group shares runs; set when group is.
        is_slow: whether the shapes are not compiled, so that the run would delay requests whose shapes are.
    """

    items: int = 1
    group: Hashable | None = None
    batches: Batches | None = None
    is_slow: bool = False


class Work(Protocol):
    """Steps of one request. They are called one after the other, each in some thread, in the request's context."""

    def prepare(self) -> RunSpec | None:
        """Prepare the request and return what its run needs, or None when no run is needed."""

    def prepare_here(self) -> bool:
        """Prepare the request on the event loop if that takes no time; return whether the other steps are as quick."""

    def run(self, cancelled: Callable[[], bool] | None) -> None:
        """Run the request alone; without ``cancelled`` to its end."""

    def run_with(self, others: Sequence[Any], cancelled: Callable[[], bool]) -> None:
        """Run the request together with others of its group; the caller runs each alone when this fails.

        cancelled: whether none of the results is needed.
        """

    def finish(self, queue_s: float) -> Any:
        """Return the answer.

        queue_s: how long the request has waited in all.
        """


class Stage(enum.IntEnum):
    """Stage of a job."""

    WAITING = 0  # in a queue: it may be dropped at once
    WORKING = 1  # a thread works on it
    OVER = 2


class Job:
    """A queued request. Its attributes change under the scheduler's lock only.

    Args:
        work: the steps; dropped as soon as the result is not needed.
        deadline: on time.monotonic()'s clock.
        priority: 1 comes first.
        number: breaks ties in order of arrival.
    """

    __slots__ = ("_context", "run_spec", "future", "loop", "order", "queue_s", "since", "stage", "token", "work")

    def __init__(self, work: Work, deadline: float, priority: int, number: int) -> None:
        self.work: Work | None = work
        self.token = CancelToken(deadline)
        self.order = (priority, deadline, number)
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.stage = Stage.WAITING
        self.run_spec: RunSpec | None = None
        self.queue_s = 0.0
        self.since = time.perf_counter()
        self._context = contextvars.copy_context()

    def __lt__(self, other: Job) -> bool:
        return self.order < other.order

    def begin(self) -> Work:
        """Take the job from its queue and return its work."""
        assert self.work is not None  # a job without work has left its queue
        self.stage = Stage.WORKING
        self.queue_s += time.perf_counter() - self.since
        return self.work

    def wait(self) -> None:
        """Mark the job as waiting in a queue."""
        self.stage = Stage.WAITING
        self.since = time.perf_counter()

    def end(self) -> None:
        """Mark the job as over and release its work."""
        self.stage = Stage.OVER
        self.work = None

    def do(self, step: Callable[[], Any], is_cancelled: Callable[[], bool] | None = None) -> Any:
        """Run a step in the request's context, charged to the request's memory, and return its result.

        is_cancelled: whether the step may stop, where that differs from the job's own token (a shared run).
        """
        return self._context.run(_counted, step, is_cancelled or self.token.is_cancelled)

    def resolve(self, result: Any = None, error: BaseException | None = None) -> None:
        """Set the future from a thread."""
        forget_locals(error)
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self._resolve_now, result, error)

    def _resolve_now(self, result: Any, error: BaseException | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)


def _counted(step: Callable[[], Any], is_cancelled: Callable[[], bool]) -> Any:
    """Run a step; its request's memory stays charged until the step is over, even when the client has left."""
    reservation = current()
    with engine.cancelling(is_cancelled):
        if reservation is None:
            return step()
        before = reservation.begin(is_cancelled)
        try:
            return step()
        finally:
            reservation.end(before)
