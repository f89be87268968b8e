"""Graphs as text and pictures, made off the event loop: one at a time, and once for all clients that ask meanwhile.

Drawing a graph of thousands of operators takes seconds and many times its file's size in memory. So clients that ask
for the same drawing at the same time share the bytes, others wait, and the memory is charged to the budget.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable

from app.errors import DeadlineExceededError
from app.memory.reservation import MemoryBudget
from app.scheduling.scheduler import Scheduler


class Drawings:
    """Drawings in progress.

    Args:
        memory: the budget that they are charged to.
        queue: number of drawings that may wait.
        limit_s: time limit of a drawing, waiting included.
    """

    def __init__(self, memory: MemoryBudget, *, queue: int, limit_s: float) -> None:
        self._memory = memory
        self._limit_s = limit_s
        self.scheduler = Scheduler("graph", threads=1, runs=1, queue=queue)
        self._tasks: dict[Hashable, asyncio.Task[bytes]] = {}

    async def get(self, key: Hashable, cost: int, draw: Callable[[], bytes], deadline: float) -> bytes:
        """Return what draw returns, shared by all clients that ask with the same key until it is done.

        Args:
            key: identifies the drawing.
            cost: bytes that drawing takes.
            draw: makes the drawing, in a thread.
            deadline: of this client, on time.monotonic()'s clock; the drawing goes on for the others.

        Raises:
            QueueFullError, RequestTooLargeError: too many drawings wait, or memory is short.
            DeadlineExceededError: it was not done in time.
        """
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.create_task(self._draw(cost, draw))
            task.add_done_callback(lambda done: self._finished(key, done))
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                return await asyncio.shield(task)
        except TimeoutError:
            raise DeadlineExceededError("the graph was not drawn within the request's time") from None

    async def _draw(self, cost: int, draw: Callable[[], bytes]) -> bytes:
        reservation = self._memory.open()
        try:
            with reservation:
                reservation.charge(cost)
                return await self.scheduler.call(draw, time.monotonic() + self._limit_s)
        finally:
            reservation.close()

    def _finished(self, key: Hashable, task: asyncio.Task[bytes]) -> None:
        del self._tasks[key]
        if not task.cancelled():
            task.exception()  # marks it as retrieved, since every client may have left
