"""Tests that concurrent requests share a drawing, which is made off the event loop and charged."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any

import pytest

import app.http.routes.graph
from app.errors import DeadlineExceededError, QueueFullError, RequestTooLargeError
from app.memory.reservation import MemoryBudget
from app.serving.dataplane import Drawings
from tests.app.client import Client, serving
from tests.app.sample_models import through, write_model
from tests.patience import PATIENCE_S, until


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


def soon() -> float:
    return time.monotonic() + 60


def make(memory: MemoryBudget, queue: int = 9) -> Drawings:
    return Drawings(memory, queue=queue, limit_s=60)


def test_who_asks_for_the_same_gets_the_same_bytes_and_it_is_drawn_once(gate: Gate) -> None:
    async def run() -> None:
        memory = MemoryBudget(1000)
        drawings = make(memory)
        asked = [asyncio.create_task(drawings.get("a", 700, gate.draw, soon())) for _ in range(50)]
        while not gate.threads:
            await asyncio.sleep(0.001)
        assert memory.used == 700
        asked[0].cancel()  # the others keep theirs
        await asyncio.sleep(0)
        gate.open.set()
        first, *others = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(first, asyncio.CancelledError)
        assert len({id(text) for text in others}) == 1 and others[0] == b"drawn"
        assert len(gate.threads) == 1 and threading.get_ident() not in gate.threads
        assert memory.used == 0
        assert await drawings.get("a", 700, gate.draw, soon()) == b"drawn" and len(gate.threads) == 2
        drawings.scheduler.close()

    asyncio.run(run())


def test_different_ones_are_drawn_one_after_the_other_and_their_queue_is_bounded(gate: Gate) -> None:
    async def run() -> None:
        drawings = make(MemoryBudget(1000), queue=2)
        asked = [asyncio.create_task(drawings.get(key, 1, gate.draw, soon())) for key in range(10)]
        while not gate.threads:
            await asyncio.sleep(0.001)
        assert drawings.scheduler.running == 1 and len(gate.threads) == 1
        gate.open.set()
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert sum(isinstance(each, QueueFullError) for each in found) == 7 and found.count(b"drawn") == 3
        assert gate.most_at_once == 1
        drawings.scheduler.close()

    asyncio.run(run())


def test_one_that_memory_cannot_hold_is_not_drawn(gate: Gate) -> None:
    async def run() -> None:
        drawings = make(MemoryBudget(1000))
        with pytest.raises(RequestTooLargeError):
            await drawings.get("a", 1001, gate.draw, soon())
        with pytest.raises(DeadlineExceededError):
            await drawings.get("a", 1, gate.draw, time.monotonic() + 0.01)
        gate.open.set()
        drawings.scheduler.close()

    asyncio.run(run())
    assert len(gate.threads) <= 1


def test_graphs_asked_for_at_once_are_rendered_once_for_each_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered: list[str] = []
    asked: list[object] = []
    render, get = app.http.routes.graph.render, Drawings.get

    def counting(description: dict[str, object], format: str) -> str:
        rendered.append(format)
        until(lambda: len(asked) >= 3 * 20)  # all have asked before the first rendering ends
        return render(description, format)

    async def asking(self: Drawings, key: Hashable, *more: Any) -> bytes:
        asked.append(key)
        return await get(self, key, *more)

    async def ask(client: Client) -> list[tuple[int, bytes]]:
        formats = [format for format in ("json", "svg", "text", "param") for _ in range(20)]
        answers = await asyncio.gather(*(client.http.get(f"/graph?format={format}") for format in formats))
        return [(answer.status_code, answer.content) for answer in answers]

    write_model(tmp_path, "wait", through("test.Wait", "(?,3)f32"))
    monkeypatch.setattr(app.http.routes.graph, "render", counting)
    monkeypatch.setattr(Drawings, "get", asking)
    with serving(tmp_path, warmup=False, backend="reference") as client:
        answers = client.run(ask(client))
        assert {status for status, _ in answers} == {200} and len({text for _, text in answers}) == 4
        assert sorted(rendered) == ["json", "svg", "text"]
        assert client.plane.memory.used == 0
    with serving(tmp_path, warmup=False, backend="reference", max_bytes_in_flight=100) as client:
        answer = client.get("/graph?format=svg")
        assert answer.status_code == 413 and "memory" in answer.text
