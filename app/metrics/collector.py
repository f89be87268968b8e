"""Metrics of a server: those of this process, merged with those of the other workers."""

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
    """Interface through which workers share their metrics."""

    def write(self, data: bytes) -> None:
        """Write this worker's data."""
        ...

    def own(self) -> bytes:
        """Return the data of the previous worker of this index, empty if there was none."""
        ...

    def others(self) -> Sequence[tuple[bytes, bool]]:
        """Return the data of every other worker, and whether it runs."""
        ...


class MetricsCollector:
    """Collects all metrics on request.

    Args:
        plane: the models.

    Attributes:
        statuses: HTTP responses by status; counted on the event loop.
        codes: gRPC calls by status code; counted on the event loop.
        refusals: requests refused before they reached a route, by error code.
        connections: returns the number of open connections.
    """

    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane
        self._start = time.monotonic()
        self._worker = "0"
        self._scoreboard: Scoreboard | None = None
        self._before: Snapshot = {}
        # Held while a thread collects and writes metrics, so that none overwrites newer ones.
        self._writing = threading.Lock()
        self.statuses: Counter[int] = Counter()
        self.codes: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self.connections: Callable[[], int] = lambda: 0
        GARBAGE.watch()

    def join(self, scoreboard: Scoreboard, worker: int | str) -> None:
        """Become one of several workers, and continue the counts of the previous worker of this index."""
        self._scoreboard, self._worker = scoreboard, str(worker)
        before = scoreboard.own()
        self._before = lasting(from_bytes(before)) if before else {}

    def publish(self) -> Snapshot:
        """Collect this worker's metrics, write them for the others, and return them. Called in a thread."""
        with self._writing:
            snapshot = merged([self._before, self._read()])
            if self._scoreboard is not None:
                self._scoreboard.write(to_bytes(snapshot))
        return snapshot

    def read(self) -> Snapshot:
        """Return the metrics of all workers, those of others at most a second old. Called in a thread."""
        # Published first: another worker that is asked next must not report smaller counts.
        snapshots = [self.publish()]
        for data, is_alive in () if self._scoreboard is None else self._scoreboard.others():
            snapshot = from_bytes(data)
            snapshots.append(snapshot if is_alive else lasting(snapshot))
        return merged(snapshots)

    def _read(self) -> Snapshot:
        plane, labels = self._plane, (self._worker,)
        statuses, codes, refusals = dict(self.statuses), dict(self.codes), dict(self.refusals)  # the loop writes them
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
