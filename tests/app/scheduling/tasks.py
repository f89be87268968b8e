"""Work for tests that records its steps and can be held in its run."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from app.log import request_id
from app.scheduling.job import Batches, RunSpec
from app.scheduling.scheduler import Scheduler
from tests.patience import PATIENCE_S


def soon() -> float:
    return time.monotonic() + 60.0


class Order:
    """Record of what was run, in which order and in which batch."""

    def __init__(self) -> None:
        self.runs: list[list[str]] = []
        self.finished: list[str] = []


class Task:
    """Work of one request; fails: the step that raises. is_answered: whether it needs no run."""

    def __init__(
        self, name: str, order: Order, run_spec: RunSpec | None = None, *, is_held: bool = False, fails: str = "",
        is_answered: bool = False, is_quick: bool = False,
    ) -> None:  # fmt: skip
        self.name, self.order, self.fails, self.is_answered = name, order, fails, is_answered
        self.is_quick = is_quick
        self.run_spec = run_spec or RunSpec()
        self.prepared, self.started, self.release = threading.Event(), threading.Event(), threading.Event()
        if not is_held:
            self.release.set()
        self.cancelled: Callable[[], bool] = lambda: False
        self.threads: list[str] = []
        self.queue_s = -1.0

    def prepare(self) -> RunSpec | None:
        self.threads.append(threading.current_thread().name)
        self._fail("prepare")
        self.prepared.set()
        return None if self.is_answered else self.run_spec

    def prepare_here(self) -> bool:
        self.threads.append(threading.current_thread().name)
        return self.is_quick

    def run(self, cancelled: Callable[[], bool]) -> None:
        self._run([self], cancelled)

    def run_with(self, others: Sequence[Task], cancelled: Callable[[], bool]) -> None:
        self._run([self, *others], cancelled)

    def _run(self, tasks: Sequence[Task], cancelled: Callable[[], bool]) -> None:
        self.threads.append(threading.current_thread().name)
        self.cancelled = cancelled
        self.started.set()
        assert self.release.wait(PATIENCE_S)
        for task in tasks:
            task._fail("run")
        self.order.runs.append([task.name for task in tasks])

    def finish(self, queue_s: float) -> str:
        self.threads.append(threading.current_thread().name)
        self._fail("finish")
        self.queue_s = queue_s
        self.order.finished.append(self.name)
        return f"{self.name} by {request_id.get()}"

    def _fail(self, where: str) -> None:
        if self.fails == where:
            raise ZeroDivisionError(self.name)

    async def running(self) -> None:
        assert await asyncio.to_thread(self.started.wait, PATIENCE_S)


def group(items: int = 1, sizes: tuple[int, ...] = (1, 2, 4), name: str = "g", delay_s: float = 0.0) -> RunSpec:
    return RunSpec(items=items, group=name, batches=Batches(sizes, delay_s))


def run(test: Callable[[Scheduler, Order], Coroutine[Any, Any, None]], **options: Any) -> None:
    scheduler = Scheduler("model", **({"threads": 1, "runs": 1, "queue": 100} | options))

    async def whole() -> None:
        await test(scheduler, Order())
        await until(lambda: not scheduler.is_busy)
        assert (scheduler.running, scheduler.queued, scheduler.waiting) == (0, 0, 0)

    try:
        asyncio.run(whole())
    finally:
        scheduler.close()


async def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.001)


async def queue_up(scheduler: Scheduler, tasks: Sequence[Task], priorities: Sequence[int] = ()) -> list[Any]:
    """Queue prepared requests behind a held run, and return their tasks."""
    before, asked = scheduler.waiting, []
    for task, priority in zip(tasks, priorities or [10] * len(tasks), strict=True):
        asked.append(asyncio.create_task(scheduler.run(task, soon(), priority)))
    await until(lambda: scheduler.waiting == before + len(tasks))
    return asked


async def hold(scheduler: Scheduler, order: Order, name: str = "held") -> tuple[Task, asyncio.Task[Any]]:
    task = Task(name, order, is_held=True)
    asked = asyncio.create_task(scheduler.run(task, soon()))
    await task.running()
    return task, asked
