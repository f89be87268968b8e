"""Definitions of all metrics, one row each, and snapshots of their values.

A test compares docs/operating.md and the Grafana dashboard with this table. Snapshots are plain data that can be sent
to another process and merged. A worker that replaces a dead one continues its counters and histograms: they never
decrease.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import orjson

from app.models.statistics import ITEM_BOUNDS, TIME_BOUNDS


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
