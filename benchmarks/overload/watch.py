"""Measurements during an attack: the answers of good clients, and the server's use of the machine."""

from __future__ import annotations

import asyncio
import os
import re
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from benchmarks.memory import resident_bytes


@dataclass
class Answers:
    """Answers of one good client: times of right ones in seconds, and the number of others."""

    times_s: list[float] = field(default_factory=list)
    failed: int = 0

    def quantile(self, share: float) -> float | None:
        """Return a quantile of the times; None without answers."""
        ordered = sorted(self.times_s)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None

    def describe(self) -> dict[str, float | int | None]:
        """Return plain data, times in ms."""
        p50, p99 = (None if found is None else found * 1e3 for found in (self.quantile(0.5), self.quantile(0.99)))
        return {"answers": len(self.times_s), "failed": self.failed, "p50_ms": p50, "p99_ms": p99}


@dataclass
class Usage:
    """Largest values of a process and its children."""

    memory_mb: float = 0.0
    threads: int = 0
    files: int = 0

    def look(self, pid: int) -> None:
        """Take the current values if they are larger; a process that has ended has none."""
        try:
            status = Path(f"/proc/{pid}/status").read_text()
            self.memory_mb = max(self.memory_mb, resident_bytes(pid) / 2**20)
            self.threads = max(self.threads, int(re.findall(r"Threads:\s+(\d+)", status)[0]))
            self.files = max(self.files, len(os.listdir(f"/proc/{pid}/fd")))
        except (OSError, IndexError):
            return


async def ask(port: int, request: httpx.Request, end: float, every_s: float, patience_s: float) -> Answers:
    """Send requests at a steady pace on one connection until the end, however slow the answers are.

    Args:
        every_s: from one request to the next; 0 asks again at once.
        patience_s: an answer later than this counts as failed.
    """
    answers = Answers()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=patience_s, trust_env=False) as http:
        while time.monotonic() < end:
            start = time.monotonic()
            try:
                answer = await http.send(request)
            except httpx.HTTPError:
                answers.failed += 1
            else:
                if answer.status_code == 200:
                    answers.times_s.append(time.monotonic() - start)
                else:
                    answers.failed += 1
            await asyncio.sleep(max(0.0, start + every_s - time.monotonic()))
    return answers


async def watch(pid: int, end: float) -> Usage:
    """Record what a process uses, ten times a second."""
    usage = Usage()
    while time.monotonic() < end:
        usage.look(pid)
        await asyncio.sleep(0.1)
    return usage
