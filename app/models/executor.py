"""Threads with a bounded queue, for work that runs no model.

A request is rejected at once if the queue is full. A queued one is dropped if its client disconnects, its deadline
passes or the server stops. A running one is cancelled by its token, and occupies its thread until it reacts.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from app.errors import DeadlineExceededError, ModelNotReadyError, QueueFullError
from app.scheduling.job import CancelToken, forget_locals

T = TypeVar("T")


class BoundedExecutor:
    """Threads and bounded queue of one model.

    Args:
        name: name of the model, for messages and thread names.
        threads: number of threads.
        queue: maximum number of queued work items.
    """

    def __init__(self, name: str, *, threads: int, queue: int) -> None:
        self.name = name
        self.threads = threads
        self._limit = threads + queue
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=f"executor-{name}")
        self._lock = threading.Lock()
        self._pending = 0
        self._running = 0
        self._ended = "the server is stopping"

    async def run(self, work: Callable[[CancelToken], T], deadline: float) -> T:
        """Run work in one of the threads and return its result.

        Args:
            work: called with its token and with the caller's context variables.
            deadline: on time.monotonic()'s clock; includes queueing.

        Raises:
            QueueFullError: the queue is full.
            DeadlineExceededError: the deadline passed; queued work is dropped.
            ModelNotReadyError: the executor is closed.
        """
        token = CancelToken(deadline)
        future = self._submit(work, token)
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            raise self._too_late() from None
        finally:
            token.cancel()

    @property
    def queued(self) -> int:
        """Return the number of queued work items."""
        return max(0, self._pending - self._running)

    @property
    def running(self) -> int:
        """Return the number of running work items."""
        return self._running

    def retire(self) -> None:
        """Accept no more work; finish what is running and queued."""
        self._ended = f"this version of '{self.name}' is no longer served"
        self._executor.shutdown(wait=False)

    def close(self) -> None:
        """Drop queued work; finish what is running."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _submit(self, work: Callable[[CancelToken], T], token: CancelToken) -> Future[T]:
        with self._lock:
            if self._pending >= self._limit:
                raise QueueFullError(
                    f"'{self.name}' is busy: {self._pending} requests run or wait, at most {self._limit} may",
                    limit=self._limit,
                )
            self._pending += 1
        try:
            future = self._executor.submit(contextvars.copy_context().run, self._work, work, token)
        except RuntimeError:  # executor was shut down
            self._leave()
            raise ModelNotReadyError(self._ended) from None
        future.add_done_callback(lambda _: self._leave())
        return future

    def _work(self, work: Callable[[CancelToken], T], token: CancelToken) -> T:
        if token.is_cancelled():
            raise self._too_late()
        with self._lock:
            self._running += 1
        try:
            return work(token)
        except BaseException as exc:
            forget_locals(exc)
            raise
        finally:
            with self._lock:
                self._running -= 1

    def _leave(self) -> None:
        with self._lock:
            self._pending -= 1

    def _too_late(self) -> DeadlineExceededError:
        return DeadlineExceededError(f"'{self.name}' did not answer within the request's time")
