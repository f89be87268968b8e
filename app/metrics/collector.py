"""Definitions of all metrics, one row each, and their collection in this process and the other workers.

A test compares docs/operating.md and the Grafana dashboard with this table. Snapshots are plain data that can be sent
to another process and merged. A worker that replaces a dead one continues its counters and histograms: they never
decrease.
"""

from __future__ import annotations

import enum
import gc
import os
import platform
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import orjson

import engine
from app.memory.machine import resident_bytes
from app.models.model import Model
from app.models.registry.store import Store
from app.models.registry.version import State, Version
from app.models.statistics import ITEM_BOUNDS, TIME_BOUNDS, Statistics
from app.serving.dataplane import DataPlane
from app.version import version as program_version

_OK = "ok"
_FILES: Final = Path("/proc/self/fd")


class Kind(enum.StrEnum):
    """Prometheus type of a metric."""

    COUNTER = "counter"  # never goes down
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Family:
    """Metric with all its labels.

    Args:
        text: one line of help.
        labels: their names. Values are names from the store and fixed words, never text from a client.
        bounds: upper bounds of a histogram's buckets.
        is_most: whether values of several workers are merged to the maximum, not the sum.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    text: str
    bounds: tuple[float, ...] = ()
    is_most: bool = False


_VERSION: Final = ("model", "version")
_WORKER: Final = ("worker",)

_ROWS: Final = (
    Family("pnnx_serve_requests_total", Kind.COUNTER, (*_VERSION, "outcome"),
           "Requests to a model: ok, cancelled (client disconnected), or the error code."),
    Family("pnnx_serve_request_seconds", Kind.HISTOGRAM, _VERSION,
           "Time of answered requests from the queue to the predictions.", TIME_BOUNDS),
    Family("pnnx_serve_stage_seconds", Kind.HISTOGRAM, (*_VERSION, "stage"),
           "The same by stage: queue, preprocess (with decoding), inference, postprocess.", TIME_BOUNDS),
    Family("pnnx_serve_step_seconds", Kind.HISTOGRAM, (*_VERSION, "step"),
           "Time of each step of a pipeline, over all items of a request.", TIME_BOUNDS),
    Family("pnnx_serve_request_items", Kind.HISTOGRAM, _VERSION,
           "Items of answered requests: images, or rows of a batch.", ITEM_BOUNDS),
    Family("pnnx_serve_batch_items", Kind.HISTOGRAM, _VERSION,
           "Items of runs, which may combine requests.", ITEM_BOUNDS),
    Family("pnnx_serve_batches_total", Kind.COUNTER, (*_VERSION, "limit"),
           "Runs of models with batching by what limited their size: full, few, alone or others; see batching.md."),
    Family("pnnx_serve_batch_mismatches_total", Kind.COUNTER, _VERSION,
           "Requests whose outputs differed between a batch and the reference; needs verify_batches."),
    Family("pnnx_serve_queued_requests", Kind.GAUGE, _VERSION, "Requests in preparation or waiting for a run."),
    Family("pnnx_serve_running_requests", Kind.GAUGE, _VERSION, "Requests that run."),
    Family("pnnx_serve_model_state", Kind.GAUGE, (*_VERSION, "state"),
           "Processes by state of the version: loading, ready, failed or unloaded; version is empty if unknown."),
    Family("pnnx_serve_model_load_seconds", Kind.GAUGE, _VERSION, "Time to load the version, warm-up included.",
           is_most=True),
    Family("pnnx_serve_model_last_request_timestamp_seconds", Kind.GAUGE, _VERSION,
           "Time of the last answer; absent before the first.", is_most=True),
    Family("pnnx_serve_model_bytes", Kind.GAUGE, (*_VERSION, "kind"),
           "Memory by kind: weights (size in the file), compiled (code, packed weights, buffers)."),
    Family("pnnx_serve_compiler_defects_total", Kind.COUNTER, _VERSION,
           "Compiler defects, listed by GET /models/{name}; absent before the first."),
    Family("pnnx_serve_response_cache_lookups_total", Kind.COUNTER, (*_VERSION, "outcome"),
           "Lookups in the response cache: hit or miss."),
    Family("pnnx_serve_response_cache_seconds_total", Kind.COUNTER, (*_VERSION, "outcome"),
           "Time for lookups and insertions in the response cache."),
    Family("pnnx_serve_response_cache_bytes", Kind.GAUGE, _VERSION, "Memory of the response cache."),
    Family("pnnx_serve_response_cache_entries", Kind.GAUGE, _VERSION, "Entries of the response cache."),
    Family("pnnx_serve_sequences", Kind.GAUGE, _VERSION, "Sequences in progress; only of models with states."),
    Family("pnnx_serve_http_responses_total", Kind.COUNTER, ("status",),
           "Answers of all routes by status; 499: the client disconnected before the answer."),
    Family("pnnx_serve_grpc_responses_total", Kind.COUNTER, ("code",),
           "gRPC answers by status code; CANCELLED: the client disconnected or its deadline passed."),
    Family("pnnx_serve_connection_refusals_total", Kind.COUNTER, ("code",),
           "Requests refused before they reached a route, by error code."),
    Family("pnnx_serve_build_info", Kind.GAUGE, ("version", "python"),
           "Versions of the server and of Python; always 1.", is_most=True),
    Family("pnnx_serve_ready", Kind.GAUGE, _WORKER, "1 if the process is ready, as /health/ready reports."),
    Family("pnnx_serve_uptime_seconds", Kind.GAUGE, _WORKER, "Time since the process began to serve."),
    Family("pnnx_serve_connections", Kind.GAUGE, _WORKER, "Open connections."),
    Family("pnnx_serve_request_memory_bytes", Kind.GAUGE, _WORKER, "Memory reserved by requests."),
    Family("pnnx_serve_request_memory_limit_bytes", Kind.GAUGE, _WORKER, "Its limit; see max_bytes_in_flight."),
    Family("pnnx_serve_programs_total", Kind.COUNTER, (*_WORKER, "origin"),
           "Programs (code for a graph and its shapes) by origin: compiled, or loaded from the cache on disk."),
    Family("pnnx_serve_program_seconds_total", Kind.COUNTER, (*_WORKER, "origin"), "Time to make programs."),
    Family("pnnx_serve_instances", Kind.GAUGE, _WORKER, "Programs in memory."),
    Family("pnnx_serve_instances_bytes", Kind.GAUGE, _WORKER, "Their memory: code, packed weights, buffers."),
    Family("pnnx_serve_compile_wishes", Kind.GAUGE, _WORKER, "Shapes that were requested and have no program yet."),
    Family("pnnx_serve_compiling", Kind.GAUGE, _WORKER, "1 while a program is compiled in the background."),
    Family("process_resident_memory_bytes", Kind.GAUGE, _WORKER,
           "Resident memory; shared pages are counted in each process."),
    Family("process_cpu_seconds_total", Kind.COUNTER, _WORKER, "User and system CPU time."),
    Family("process_open_fds", Kind.GAUGE, _WORKER, "Open file descriptors."),
    Family("process_threads", Kind.GAUGE, _WORKER, "Python threads."),
    Family("python_gc_collections_total", Kind.COUNTER, (*_WORKER, "generation"), "Garbage collections."),
    Family("python_gc_objects_collected_total", Kind.COUNTER, (*_WORKER, "generation"), "Objects that were freed."),
    Family("python_gc_seconds_total", Kind.COUNTER, (*_WORKER, "generation"), "Time in garbage collection."),
)  # fmt: skip

FAMILIES: Final = {family.name: family for family in _ROWS}


Labels: TypeAlias = tuple[str, ...]
# A number; for a histogram a list of the sum and the count of each bucket.
Value: TypeAlias = "float | list[float]"
Snapshot: TypeAlias = dict[str, dict[Labels, Value]]


def merged(snapshots: Iterable[Snapshot]) -> Snapshot:
    """Return the merged snapshots of several processes."""
    result: Snapshot = {}
    for snapshot in snapshots:
        for name, values in snapshot.items():
            family, into = FAMILIES[name], result.setdefault(name, {})
            for labels, value in values.items():
                into[labels] = _joined(into[labels], value, family.is_most) if labels in into else value
    return result


def lasting(snapshot: Snapshot) -> Snapshot:
    """Return the part of a snapshot that stays valid after its process has ended."""
    return {name: values for name, values in snapshot.items() if FAMILIES[name].kind is not Kind.GAUGE}


def to_bytes(snapshot: Snapshot) -> bytes:
    """Return the snapshot as bytes for another process."""
    # One line per family: decoding a short line blocks the other threads of the process for less time.
    return b"\n".join(
        orjson.dumps([name, [[labels, value] for labels, value in rows.items()]]) for name, rows in snapshot.items()
    )


def from_bytes(data: bytes) -> Snapshot:
    """Return the snapshot that ``to_bytes`` was given."""
    found: Iterator[Any] = map(orjson.loads, data.splitlines())
    return {name: {tuple(labels): value for labels, value in rows} for name, rows in found}


def _joined(one: Value, other: Value, is_most: bool) -> Value:
    if isinstance(one, list) and isinstance(other, list):
        return [a + b for a, b in zip(one, other, strict=True)]
    assert not isinstance(one, list) and not isinstance(other, list)  # both are of one family
    return max(one, other) if is_most else one + other


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
    if isinstance(model, Model):
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
        if model.sequences is not None:
            yield "sequences", model.sequences.active
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
    for step, row in dict(figures.steps).items():
        yield "step_seconds", list(row), step
    yield "request_items", [float(figures.items), *buckets.items]
    yield "batch_items", [float(figures.batch_items), *buckets.batch]
    if figures.last_request_at is not None:
        yield "model_last_request_timestamp_seconds", figures.last_request_at


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
    if (resident := resident_bytes()) is not None:
        yield "process_resident_memory_bytes", float(resident)
    with suppress(OSError):  # another system, or out of file descriptors
        yield "process_open_fds", len(os.listdir(_FILES)) - 1  # without the descriptor of the listing itself


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
