"""The figures of a server: those of this process, together with those of the other workers where there are any."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from app.metrics.families import Snapshot, from_bytes, lasting, merged, to_bytes
from app.metrics.models import read_models
from app.metrics.process import GARBAGE, read_process
from app.serving.dataplane import DataPlane


class Scoreboard(Protocol):
    """Where workers leave their figures for each other."""

    def write(self, data: bytes) -> None:
        """Leave this worker's."""
        ...

    def own(self) -> bytes:
        """What the one that was in this worker's place left; nothing where there was none."""
        ...

    def others(self) -> Sequence[tuple[bytes, bool]]:
        """What each of the others left, and whether it still runs."""
        ...


class MetricsCollector:
    """Reads all figures when it is asked.

    Args:
        plane: whose models it tells of.

    Attributes:
        statuses: answers by status; written by whoever sees all of them, on the event loop.
        codes: calls over gRPC by its name of how they ended; written on the event loop, too.
        refusals: requests that were answered by nobody else but their connection, by code.
        connections: counts those that are open.
    """

    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane
        self._start = time.monotonic()
        self._worker = "0"
        self._scoreboard: Scoreboard | None = None
        self._before: Snapshot = {}
        # Held while figures are read and left by a thread, so that none leaves older ones than there are.
        self._writing = threading.Lock()
        self.statuses: Counter[int] = Counter()
        self.codes: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self.connections: Callable[[], int] = lambda: 0
        GARBAGE.watch()

    def join(self, scoreboard: Scoreboard, worker: int | str) -> None:
        """Be one of several workers, and go on counting where the one before it ended."""
        self._scoreboard, self._worker = scoreboard, str(worker)
        before = scoreboard.own()
        self._before = lasting(from_bytes(before)) if before else {}

    def publish(self) -> Snapshot:
        """Return this worker's figures, left where the others find them. Called in a thread."""
        with self._writing:
            snapshot = merged([self._before, self._read()])
            if self._scoreboard is not None:
                self._scoreboard.write(to_bytes(snapshot))
        return snapshot

    def read(self) -> Snapshot:
        """All figures of the server as they are now, or were a second ago in another worker. Called in a thread."""
        # Left for the others first: whoever is asked next must not tell less.
        snapshots = [self.publish()]
        for data, is_alive in () if self._scoreboard is None else self._scoreboard.others():
            snapshot = from_bytes(data)
            snapshots.append(snapshot if is_alive else lasting(snapshot))
        return merged(snapshots)

    def _read(self) -> Snapshot:
        plane, labels = self._plane, (self._worker,)
        statuses, codes, refusals = dict(self.statuses), dict(self.codes), dict(self.refusals)  # the loop counts on
        return {
            **read_models(plane.store, idle_histograms=plane.settings.metrics_histograms == "all"),
            **read_process(self._worker),
            "pnnx_serve_http_responses_total": {(str(status),): count for status, count in statuses.items()},
            "pnnx_serve_grpc_responses_total": {(code,): count for code, count in codes.items()},
            "pnnx_serve_connection_refusals_total": {(code,): count for code, count in refusals.items()},
            "pnnx_serve_ready": {labels: float(plane.unready_reason() is None)},
            "pnnx_serve_uptime_seconds": {labels: time.monotonic() - self._start},
            "pnnx_serve_connections": {labels: self.connections()},
            "pnnx_serve_request_memory_bytes": {labels: plane.memory.used},
            "pnnx_serve_request_memory_limit_bytes": {labels: plane.memory.total},
        }
