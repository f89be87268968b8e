"""Metrics of models, read from their statistics."""

from __future__ import annotations

from collections.abc import Iterator

from app.metrics.families import Snapshot, Value
from app.models.registry.store import Store
from app.models.registry.version import State, Version
from app.models.statistics import Statistics

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
