"""Tests that graphs are drawn one at a time, off the event loop, and charged."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.errors import DeadlineExceededError, QueueFullError, RequestTooLargeError
from app.serving.dataplane import DataPlane
from app.settings import Settings
from tests.app.client import serving
from tests.app.sample_models import through, write_model
from tests.patience import PATIENCE_S


class Gate:
    """Drawing that waits until it is released, and counts."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.threads: list[int] = []
        self.most_at_once = self._drawing = 0
        self._lock = threading.Lock()

    def draw(self) -> bytes:
        with self._lock:
            self.threads.append(threading.get_ident())
            self._drawing += 1
            self.most_at_once = max(self.most_at_once, self._drawing)
        assert self.open.wait(PATIENCE_S)
        time.sleep(0.01)  # long enough for another to begin, if it may
        with self._lock:
            self._drawing -= 1
        return b"drawn"


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open.set()


async def draw(plane: DataPlane, gate: Gate, cost: int = 1, seconds: float = 60) -> bytes:
    with plane.memory.answering() as reservation:
        drawn = await plane.draw(cost, gate.draw, time.monotonic() + seconds)
        reservation.close()
        return drawn


@pytest.fixture
def plane(tmp_path: Path) -> DataPlane:
    return DataPlane(Settings(store=tmp_path, max_queue=2, max_bytes_in_flight=1000))


def test_graphs_are_drawn_one_after_the_other_and_their_queue_is_bounded(gate: Gate, plane: DataPlane) -> None:
    async def run() -> None:
        asked = [asyncio.create_task(draw(plane, gate, 700)) for _ in range(10)]
        while not gate.threads:
            await asyncio.sleep(0.001)
        assert len(gate.threads) == 1 and threading.get_ident() not in gate.threads
        assert plane.memory.used == 700  # only what is being drawn takes memory
        gate.open.set()
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert sum(isinstance(each, QueueFullError) for each in found) == 7 and found.count(b"drawn") == 3
        assert gate.most_at_once == 1 and plane.memory.used == 0
        await plane.close()

    asyncio.run(run())


def test_one_that_memory_cannot_hold_is_not_drawn(gate: Gate, plane: DataPlane) -> None:
    async def run() -> None:
        with pytest.raises(RequestTooLargeError):
            await draw(plane, gate, 1001)
        with pytest.raises(DeadlineExceededError):
            await draw(plane, gate, seconds=0.01)
        gate.open.set()
        await plane.close()

    asyncio.run(run())
    assert len(gate.threads) <= 1


def test_a_graph_that_memory_cannot_hold_is_refused(tmp_path: Path) -> None:
    write_model(tmp_path, "wait", through("test.Wait", "(?,3)f32"))
    with serving(tmp_path, warmup=False, backend="reference", max_bytes_in_flight=100) as client:
        answer = client.get("/graph?format=svg")
        assert answer.status_code == 413 and "memory" in answer.text
