"""Tests of publishing metrics for other workers."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

from app.process.worker_ipc import WorkerIpc


def test_figures_of_all_models_are_read_beside_the_event_loop() -> None:
    threads: list[threading.Thread] = []
    metrics: Any = SimpleNamespace(publish=lambda: threads.append(threading.current_thread()))
    left: list[bytes] = []
    place: Any = SimpleNamespace(write=left.append)
    counters = SimpleNamespace(to_bytes=lambda entries: b"counters")
    plane: Any = SimpleNamespace(store=SimpleNamespace(counters=counters, entries=[]))
    ipc = WorkerIpc(index=0, figures=place, counters=place, channel=None)  # type: ignore[arg-type]
    asyncio.run(ipc.publish(plane, metrics))
    assert len(threads) == 1 and threads[0] is not threading.current_thread()
    assert left == [b"counters"]
