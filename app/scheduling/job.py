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
from app.memory.allowance import current

# What requests have that say nothing; 1 comes first of all.
USUAL_PRIORITY: Final = 10


class Ticket:
    """What running work can ask: does anybody still want the result?

    Args:
        deadline: on time.monotonic()'s clock.
    """

    __slots__ = ("_is_abandoned", "deadline")

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self._is_abandoned = False

    def abandon(self) -> None:
        """Nobody waits for it any more."""
        self._is_abandoned = True

    def is_void(self) -> bool:
        """Whether the work may stop."""
        return self._is_abandoned or time.monotonic() > self.deadline


def forget_locals(exc: BaseException | None) -> None:
    """Free what the frames of an exception, and of those behind it, still hold: here, not where it is answered."""
    seen: set[int] = set()
    while exc is not None and id(exc) not in seen:
        seen.add(id(exc))
        traceback.clear_frames(exc.__traceback__)
        exc = exc.__cause__ or exc.__context__


@dataclass(frozen=True, slots=True)
class Batches:
    """How requests of a kind may share runs.

    Args:
        sizes: that there is code for, rising.
        delay_s: how long a request may wait for others to share its run.
    """

    sizes: tuple[int, ...]
    delay_s: float = 0.0

    @property
    def most(self) -> int:
        """Items of one run, at most."""
        return self.sizes[-1]


@dataclass(frozen=True, slots=True)
class Demand:
    """What a prepared request wants of a run.

    Args:
        items: pictures, or rows of a batch; 0 for what is no request.
        group: requests of the same group may share a run; None for one that runs alone.
        batches: how they share it; there where group is.
        is_slow: whether there is no code for its shapes, so that it would hold up those that there is code for.
    """

    items: int = 1
    group: Hashable | None = None
    batches: Batches | None = None
    is_slow: bool = False


class Work(Protocol):
    """One request's steps, each on some thread and with the request's context, one after the other."""

    def prepare(self) -> Demand | None:
        """Make it ready to run, and say what the run will take; None where none is needed."""

    def prepare_here(self) -> bool:
        """Make it ready on the event loop, as far as that takes no time; whether the rest of it takes none either."""

    def run(self, cancelled: Callable[[], bool]) -> None:
        """Compute it by itself."""

    def run_with(self, others: Sequence[Any], cancelled: Callable[[], bool]) -> None:
        """Compute it and others of its group in one run; where that fails, each is run by itself.

        cancelled: nobody wants any of them.
        """

    def finish(self, queue_s: float) -> Any:
        """Make the answer.

        queue_s: how long it waited, all in all.
        """


class Stage(enum.IntEnum):
    """Where a job is."""

    WAITING = 0  # in a queue: it may be dropped at once
    WORKING = 1  # in a thread's hands
    OVER = 2


class Job:
    """A request that has a place in the queue. What changes, changes under the scheduler's lock.

    Args:
        work: dropped as soon as nobody wants it.
        order: among those that wait; lower comes first.
    """

    __slots__ = ("_context", "demand", "future", "loop", "order", "queue_s", "since", "stage", "ticket", "work")

    def __init__(self, work: Work, deadline: float, priority: int, number: int) -> None:
        self.work: Work | None = work
        self.ticket = Ticket(deadline)
        self.order = (priority, deadline, number)
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.stage = Stage.WAITING
        self.demand: Demand | None = None
        self.queue_s = 0.0
        self.since = time.perf_counter()
        self._context = contextvars.copy_context()

    def __lt__(self, other: Job) -> bool:
        return self.order < other.order

    def begin(self) -> Work:
        """A thread takes it from a queue, where it has waited."""
        assert self.work is not None  # it is dropped together with its place
        self.stage = Stage.WORKING
        self.queue_s += time.perf_counter() - self.since
        return self.work

    def wait(self) -> None:
        """Go back to waiting in a queue."""
        self.stage = Stage.WAITING
        self.since = time.perf_counter()

    def end(self) -> None:
        """Nothing is left to do for it; what it held is free."""
        self.stage = Stage.OVER
        self.work = None

    def do(self, step: Callable[[], Any], is_void: Callable[[], bool] | None = None) -> Any:
        """What a step returns, done with the request's context; what it holds stays counted meanwhile.

        is_void: whether the step may stop, where that is not the same as for the request.
        """
        return self._context.run(_counted, step, is_void or self.ticket.is_void)

    def settle(self, result: Any = None, error: BaseException | None = None) -> None:
        """Let the loop know, from a thread."""
        forget_locals(error)
        with suppress(RuntimeError):  # the loop is closed, and nobody waits
            self.loop.call_soon_threadsafe(self._tell, result, error)

    def _tell(self, result: Any, error: BaseException | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)


def _counted(step: Callable[[], Any], is_void: Callable[[], bool]) -> Any:
    """What a step returns; what its request holds stays counted until it is done, whoever waits for it."""
    allowance = current()
    with engine.cancelling(is_void):
        if allowance is None:
            return step()
        before = allowance.begin(is_void)
        try:
            return step()
        finally:
            allowance.end(before)
