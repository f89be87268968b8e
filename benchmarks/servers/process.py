"""Servers that run in turn on the first core: started, compared with PyTorch, measured, stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.files import Files
from benchmarks.networks import Network
from benchmarks.servers.rivals import Rival
from benchmarks.servers.wire import Connection, is_ready

_START_S: Final = 120.0


@dataclass
class Side:
    """Results of one server, by number of clients."""

    rates: dict[int, list[float]] = field(default_factory=dict)
    waits_ms: dict[int, list[float]] = field(default_factory=dict)


@dataclass
class Peer:
    """Running server."""

    rival: Rival
    port: int
    process: subprocess.Popen[bytes]
    message: bytes
    side: Side = field(default_factory=Side)

    def signal(self, number: signal.Signals) -> None:
        """Signal the server and all its descendants, some of which have groups of their own."""
        for pid in _family(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def _family(pid: int) -> list[int]:
    """Return a process and its descendants, oldest first."""
    found = [pid]
    for parent in found:
        with contextlib.suppress(OSError):
            texts = [path.read_text() for path in Path(f"/proc/{parent}/task").glob("*/children")]
            found += [int(child) for text in texts for child in text.split()]
    return found


def make_files(network: Network, folder: Path) -> Files:
    """Return a network's files; make those that are missing."""
    files = Files(folder / "models" / network.name)
    if files.missing([1]):
        from benchmarks.export import export  # needs torch

        for remark in export(network, files, [1]):
            print(remark)
    return files


@contextlib.contextmanager
def serving(rival: Rival, python: Path, files: Files, port: int, x: np.ndarray, log: Path) -> Iterator[Peer | None]:
    """Yield a server on the first core once it answers correctly; None if it does not start."""
    if is_ready(port, rival.ready):
        raise SystemExit(f"something answers at port {port} already")
    with tempfile.TemporaryDirectory() as folder, log.open("wb") as output:
        start = rival.start(python, files, port, Path(folder) / "own", x.shape)
        process = subprocess.Popen(
            ["taskset", "-c", str(min(os.sched_getaffinity(0))), *start.command],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1", **start.environ},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        peer = Peer(rival, port, process, rival.ask(x).wire())
        try:
            problem = _fault(peer, np.load(files.output(1)).ravel())
            if problem is not None:
                print(f"{rival.name} is left out: {problem}; see {log}", flush=True)
            yield None if problem else peer
        finally:
            peer.signal(signal.SIGKILL)
            process.wait()


def _fault(peer: Peer, expected: np.ndarray) -> str | None:
    end = time.monotonic() + _START_S
    while not is_ready(peer.port, peer.rival.ready):
        if peer.process.poll() is not None or time.monotonic() > end:
            return "it did not start"
        time.sleep(0.2)
    status, headers, body = Connection(peer.port).ask(peer.message)
    if status != 200:
        return f"{status} {body[:300]!r}"
    found = peer.rival.read(headers, body)
    is_right = found.shape == expected.shape and np.allclose(found, expected, rtol=1e-3, atol=1e-3)
    return None if is_right else f"a wrong answer: {found[:4]}, expected {expected[:4]}"


def measure(peer: Peer, clients: int, seconds: float) -> None:
    """Run one turn: as many requests as these clients get answered."""
    waits: list[float] = []
    begin = threading.Barrier(clients + 1)

    def client() -> None:
        connection, own = Connection(peer.port), list[float]()
        connection.ask(peer.message)
        begin.wait()
        end = time.perf_counter() + seconds
        while (start := time.perf_counter()) < end:
            status, _, _ = connection.ask(peer.message)
            if status == 200:
                own.append((time.perf_counter() - start) * 1e3)
        waits.extend(own)
        connection.close()

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    begin.wait()
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    peer.side.rates.setdefault(clients, []).append(len(waits) / (time.perf_counter() - start))
    peer.side.waits_ms.setdefault(clients, []).extend(waits)
