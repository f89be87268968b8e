"""Graphs as text and pictures, made off the event loop: one at a time, in a thread of its own, once for all who ask.

Drawing a graph of thousands of operators takes seconds and many times its file in memory. So those who ask for the same
one at the same time get the same bytes, others wait their turn, and what is drawn and sent is charged as all else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable

from app.errors import DeadlineExceededError
from app.memory.budget import MemoryBudget
from app.memory.reservation import current
from app.models.lane import Lane


class Drawings:
    """The drawings that are being made.

    Args:
        memory: what they are charged to.
        queue: how many may wait.
        retry_after_s: what a refused client is told.
        limit_s: the time of one, waiting included.
    """

    def __init__(self, memory: MemoryBudget, *, queue: int, retry_after_s: int, limit_s: float) -> None:
        self._memory = memory
        self._limit_s = limit_s
        self._lane = Lane("graph", threads=1, queue=queue, retry_after_s=retry_after_s)
        self._tasks: dict[Hashable, asyncio.Task[bytes]] = {}

    async def get(self, key: Hashable, cost: int, draw: Callable[[], bytes], deadline: float) -> bytes:
        """What draw returns, for everybody who asks with this key until it is there.

        Args:
            cost: bytes that drawing takes.
            deadline: of this client, on time.monotonic()'s clock. One that goes away leaves the others their drawing.

        Raises:
            QueueFullError, RequestTooLargeError: too many others are drawn, or memory is short.
            DeadlineExceededError: it did not come in time.
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

    @property
    def running(self) -> int:
        """How many are drawn now."""
        return self._lane.running

    def close(self) -> None:
        """Drop what waits."""
        self._lane.close()

    async def _draw(self, cost: int, draw: Callable[[], bytes]) -> bytes:
        reservation = self._memory.open()
        try:
            with reservation:
                reservation.charge(cost)
                deadline = time.monotonic() + self._limit_s
                return await self._lane.run(lambda token: _heeding(draw, token.is_cancelled), deadline)
        finally:
            reservation.close()

    def _finished(self, key: Hashable, task: asyncio.Task[bytes]) -> None:
        del self._tasks[key]
        if not task.cancelled():
            task.exception()  # whoever waited has it; nobody may have


def _heeding(draw: Callable[[], bytes], is_cancelled: Callable[[], bool]) -> bytes:
    reservation = current()
    assert reservation is not None  # set by _draw; lanes hand it on
    with reservation.working(is_cancelled):
        return draw()
