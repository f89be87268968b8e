"""Threads behind a bounded queue: admitted requests, dropped requests, and none left waiting."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from app.errors import DeadlineExceededError, ModelNotReadyError, QueueFullError
from app.log import request_id
from app.models.executor import BoundedExecutor, CancelToken
from tests.patience import PATIENCE_S, limits

LATER = 60.0


class Held:
    """Work that announces itself and runs until it is released."""

    def __init__(self) -> None:
        self.started, self.release = threading.Event(), threading.Event()
        self.token: CancelToken | None = None

    def __call__(self, token: CancelToken) -> str:
        self.token = token
        self.started.set()
        assert self.release.wait(PATIENCE_S)
        return "done"

    async def running(self) -> None:
        assert await asyncio.to_thread(self.started.wait, PATIENCE_S)


def run(test: Callable[[BoundedExecutor], Coroutine[Any, Any, None]], *, threads: int = 1, queue: int = 1) -> None:
    executor = BoundedExecutor("model", threads=threads, queue=queue)
    try:
        asyncio.run(test(executor))
    finally:
        executor.close()


def soon() -> float:
    return time.monotonic() + LATER


def test_work_runs_in_a_thread_of_its_own_with_the_callers_context() -> None:
    async def test(executor: BoundedExecutor) -> None:
        request_id.set("r1")
        name, request = await executor.run(lambda _: (threading.current_thread().name, request_id.get()), soon())
        assert name.startswith("executor-model") and request == "r1"

    run(test)


def test_errors_come_back_to_the_caller() -> None:
    async def test(executor: BoundedExecutor) -> None:
        with pytest.raises(ZeroDivisionError):
            await executor.run(lambda _: 1 // 0, soon())
        assert (executor.running, executor.queued) == (0, 0)

    run(test)


def test_one_more_than_threads_and_queue_is_refused_at_once_and_others_go_on() -> None:
    async def test(executor: BoundedExecutor) -> None:
        held = [Held(), Held()]
        tasks = [asyncio.create_task(executor.run(work, soon())) for work in held]
        await held[0].running()
        assert (executor.running, executor.queued) == (1, 1)
        with pytest.raises(QueueFullError, match="'model' is busy: 2 requests run or wait, at most 2 may") as caught:
            await executor.run(lambda _: None, soon())
        assert caught.value.headers == {"Retry-After": "1"}
        for work in held:
            work.release.set()
        assert await asyncio.gather(*tasks) == ["done", "done"]
        assert await executor.run(lambda _: "free again", soon()) == "free again"

    run(test)


def test_queued_work_of_a_caller_who_left_never_runs_and_frees_its_place() -> None:
    async def test(executor: BoundedExecutor) -> None:
        first, second = Held(), Held()
        running = asyncio.create_task(executor.run(first, soon()))
        await first.running()
        waiting = asyncio.create_task(executor.run(second, soon()))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert executor.queued == 0
        first.release.set()
        assert await running == "done"
        assert await executor.run(lambda _: "next", soon()) == "next"
        assert not second.started.is_set()

    run(test)


def test_running_work_is_told_when_its_caller_left() -> None:
    async def test(executor: BoundedExecutor) -> None:
        work = Held()
        task = asyncio.create_task(executor.run(work, soon()))
        await work.running()
        assert work.token is not None and not work.token.is_cancelled()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert work.token.is_cancelled()
        work.release.set()

    run(test)


def test_a_deadline_ends_the_waiting_and_voids_the_ticket() -> None:
    async def test(executor: BoundedExecutor) -> None:
        for limit_s in limits(0.05):
            work = Held()
            with pytest.raises(DeadlineExceededError, match="'model' did not answer within the request's time"):
                await executor.run(work, time.monotonic() + limit_s)
            while executor.running + executor.queued and not work.started.is_set():
                await asyncio.sleep(0.001)
            if work.started.is_set():
                break
        assert work.token is not None and work.token.is_cancelled()
        assert executor.running == 1
        work.release.set()

    run(test)


def test_work_whose_time_is_up_before_it_starts_never_starts() -> None:
    async def test(executor: BoundedExecutor) -> None:
        work = Held()
        with pytest.raises(DeadlineExceededError):
            await executor.run(work, time.monotonic() - 1)
        assert await executor.run(lambda _: "after", soon()) == "after"
        assert not work.started.is_set()

    run(test)


def test_a_closed_lane_refuses() -> None:
    async def test(executor: BoundedExecutor) -> None:
        executor.close()
        with pytest.raises(ModelNotReadyError, match="the server is stopping"):
            await executor.run(lambda _: None, soon())

    run(test)
