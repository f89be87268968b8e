"""Collection of metrics: those of models and of this process, merged with those of the other workers."""

from __future__ import annotations

import gc
import os
import platform
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final, Protocol

import engine
from app.metrics.families import Snapshot, Value, from_bytes, lasting, merged, to_bytes
from app.models.registry.store import Store
from app.models.registry.version import State, Version
from app.models.statistics import Statistics
from app.serving.dataplane import DataPlane
from app.version import version as program_version


class Scoreboard(Protocol):
    """Interface through which workers share their metrics."""

    def write(self, data: bytes) -> None:
        """Write this worker's data."""
        ...

    def previous(self) -> bytes:
        """Return the data of the previous worker of this index, empty if there was none."""
        ...

    def peers(self) -> Sequence[tuple[bytes, bool]]:
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
        before = scoreboard.previous()
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
        for data, is_alive in () if self._scoreboard is None else self._scoreboard.peers():
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


_OK = "ok"


def read_models(store: Store, *, idle_histograms: bool = False) -> Snapshot:
    """Return the metrics of all versions that are, or will be, served; thread-safe.

    idle_histograms: whether models without a request have histograms.
    """
    found: Snapshot = {}

    def put(name: str, value: Value, *labels: str) -> None:
        found.setdefault(f"pnnx_serve_{name}", {})[labels] = value

    for entry in store.entries:
        if not entry.versions:
            for state in State:
                put("model_state", float(entry.state is state), entry.name, "", state.value)
        for version in entry.versions:
            for name, value, *labels in _of_version(version, idle_histograms):
                put(name, value, version.name, str(version.number), *labels)
    return found


def _of_version(version: Version, idle_histograms: bool) -> Iterator[tuple[str, Value, *tuple[str, ...]]]:
    for state in State:
        yield "model_state", float(version.state is state), state.value
    yield "queued_requests", version.scheduler.queued
    yield "running_requests", version.scheduler.running
    if (model := version.model) is not None:
        yield "model_load_seconds", version.load_s
        if model.session.compiler_defects:
            yield "compiler_defects_total", model.session.compiler_defects
        if (verification := model.verification) is not None:
            yield "batch_mismatches_total", verification.mismatches
        for kind, size in model.session.memory.items():
            yield "model_bytes", float(size), kind
        if (cache := model.response_cache) is not None:
            yield "response_cache_bytes", cache.held_bytes
            yield "response_cache_entries", cache.entries
            if version.statistics.requests or idle_histograms:
                yield from _of_cache(version.statistics)
    for reason, count in dict(version.scheduler.reasons).items():  # copied: threads count meanwhile
        yield "batches_total", count, reason
    yield from _of_requests(version.statistics, idle_histograms)


def _of_cache(figures: Statistics) -> Iterator[tuple[str, Value, *tuple[str, ...]]]:
    for outcome, lookups in (("hit", figures.hits), ("miss", figures.misses)):
        yield "response_cache_lookups_total", lookups.count, outcome
        yield "response_cache_seconds_total", lookups.seconds, outcome


def _of_requests(figures: Statistics, idle_histograms: bool) -> Iterator[tuple[str, Value, *tuple[str, ...]]]:
    sums, buckets = figures.sums, figures.buckets
    yield "requests_total", figures.requests, _OK
    for code, count in dict(figures.failures).items():
        yield "requests_total", count, code
    if not figures.requests and not idle_histograms:
        return
    yield "request_seconds", [sums.total_s, *buckets.total]
    yield "stage_seconds", [sums.queue_s, *buckets.queue], "queue"
    yield "stage_seconds", [sums.decode_s + sums.preprocess_s, *buckets.preprocess], "preprocess"
    yield "stage_seconds", [sums.infer_s, *buckets.infer], "inference"
    yield "stage_seconds", [sums.postprocess_s, *buckets.postprocess], "postprocess"
    yield "request_items", [float(figures.items), *buckets.items]
    yield "batch_items", [float(figures.batch_items), *buckets.batch]
    if figures.last_request_at is not None:
        yield "model_last_request_timestamp_seconds", figures.last_request_at


_STATM: Final = Path("/proc/self/statm")
_FILES: Final = Path("/proc/self/fd")


def read_process(worker: str) -> Snapshot:
    """Return the metrics of this process, labelled with its worker number."""
    found: Snapshot = {"pnnx_serve_build_info": {(_version(), platform.python_version()): 1.0}}
    for name, value, *labels in (*_of_system(), *_of_garbage(), *_of_compiler()):
        found.setdefault(name, {})[(worker, *labels)] = value
    return found


def _of_system() -> Iterator[tuple[str, float, *tuple[str, ...]]]:
    times = os.times()
    yield "process_cpu_seconds_total", times.user + times.system
    yield "process_threads", threading.active_count()
    try:
        pages = int(_STATM.read_bytes().split()[1])
        files = len(os.listdir(_FILES)) - 1  # without the descriptor of the listing itself
    except (OSError, ValueError, IndexError):  # another system, or out of file descriptors
        return
    yield "process_resident_memory_bytes", float(pages * os.sysconf("SC_PAGE_SIZE"))
    yield "process_open_fds", files


def _of_garbage() -> Iterator[tuple[str, float, *tuple[str, ...]]]:
    for generation, (figures, seconds) in enumerate(zip(gc.get_stats(), GARBAGE.seconds, strict=True)):
        label = str(generation)
        yield "python_gc_collections_total", figures["collections"], label
        yield "python_gc_objects_collected_total", figures["collected"], label
        yield "python_gc_seconds_total", seconds, label


def _of_compiler() -> Iterator[tuple[str, float, *tuple[str, ...]]]:
    metrics = engine.compile_metrics()
    yield "pnnx_serve_programs_total", metrics.compiled, "compiled"
    yield "pnnx_serve_programs_total", metrics.cached, "cache"
    yield "pnnx_serve_program_seconds_total", metrics.compiled_s, "compiled"
    yield "pnnx_serve_program_seconds_total", metrics.cached_s, "cache"
    yield "pnnx_serve_instances", metrics.instances
    yield "pnnx_serve_instances_bytes", metrics.instances_bytes
    yield "pnnx_serve_compile_wishes", metrics.compile_requests
    yield "pnnx_serve_compiling", float(metrics.is_compiling)


@cache
def _version() -> str:
    return program_version()


class Garbage:
    """Seconds of garbage collections by generation, counted from ``watch`` on."""

    def __init__(self) -> None:
        self.seconds = [0.0] * len(gc.get_stats())
        self._start = 0.0

    def watch(self) -> None:
        """Begin to count, once in a process."""
        if self._note not in gc.callbacks:
            gc.callbacks.append(self._note)

    def _note(self, phase: str, info: dict[str, int]) -> None:
        # Collections do not nest, and no thread runs Python while one does.
        if phase == "start":
            self._start = time.perf_counter()
        else:
            self.seconds[info["generation"]] += time.perf_counter() - self._start


GARBAGE: Final = Garbage()
