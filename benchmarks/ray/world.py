"""Small Ray cluster on this machine, counting clients, and requests."""

from __future__ import annotations

import io
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np

ROOT = Path(__file__).parents[2]
STORE = ROOT / "model_store"
MEMORY = 100 * 2**20
HEADERS = {"content-type": "application/x-npy", "accept": "application/x-npz"}


def settle(kind: str = "plain", more: Mapping[str, str] | None = None) -> None:
    """Set the environment before Ray is imported."""
    # A proxy that starts slowly, on a machine that others use as well, is not one that has failed.
    patience = {f"RAY_SERVE_PROXY_{each}_CHECK_TIMEOUT_S": "60" for each in ("READY", "HEALTH")}
    os.environ.update({"RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(ROOT), **patience, **(more or {})})
    if kind == "haproxy":
        os.environ["RAY_SERVE_ENABLE_HA_PROXY"] = "1"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def tensor(items: int) -> bytes:
    """Return images of digits as `.npy`; 600 are 614 kB."""
    body = io.BytesIO()
    np.save(body, np.random.default_rng(0).random((items, 1, 16, 16), np.float32))
    return body.getvalue()


@dataclass
class Count:
    """Counters of what clients met.

    Args:
        at: when each answer came, with whether it was one.
        lost: requests that had no answer with a second try either.
    """

    at: list[tuple[float, bool]] = field(default_factory=list)
    retried: int = 0
    lost: int = 0


@contextmanager
def clients(url: str, path: str, count: int = 4) -> Iterator[Count]:
    """Run clients that send one request after the other, and retry once without an answer."""
    found, stopping, body = Count(), threading.Event(), tensor(1)

    def ask(client: httpx.Client) -> bool:
        try:
            return client.post(path, content=body, headers=HEADERS).status_code == 200
        except httpx.HTTPError:
            return False

    def go_on() -> None:
        with httpx.Client(base_url=url, timeout=30) as client:
            while not stopping.is_set():
                is_answered = ask(client)
                if not is_answered:
                    found.retried += 1
                    is_answered = ask(client)
                    found.lost += not is_answered
                found.at.append((time.monotonic(), is_answered))

    threads = [threading.Thread(target=go_on) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield found
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
