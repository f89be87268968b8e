"""The model and version of a request, and the statistics of models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.errors import ModelNotReadyError, VersionNotFoundError
from app.models.model import Model
from app.models.registry.store import Store
from app.models.registry.version import Entry, Version
from app.models.statistics import Batches, Statistics, Timing


def find(store: Store, name: str | None, number: int | str | None) -> tuple[Entry, Version, Model]:
    """Return a model by name, in a version that is ready.

    Raises:
        ModelNotFoundError, VersionNotFoundError: it does not exist.
        ModelNotReadyError: it is loading, or has failed to load.
    """
    entry = store.entry(name)
    version = store.version(entry.name, number)
    if version.model is None:  # Store.version returns ready versions only
        raise ModelNotReadyError(f"model '{entry.name}' is not loaded")
    return entry, version, version.model


def statistics(store: Store, name: str | None, number: int | str | None) -> Sequence[dict[str, Any]]:
    """Return statistics of the named version, of all versions of the named model, or of all models.

    Raises:
        ModelNotFoundError, VersionNotFoundError: there is none.
    """
    entries = store.entries if name is None else (store.entry(name),)
    if isinstance(number, str):
        number = entries[0].number_of(number)
    tell = store.counters.read()
    rows = [
        model_stats(entry, each, tell(each).statistics)
        for entry in entries
        for each in entry.versions
        if number in (None, each.number)
    ]
    if name is not None and number is not None and not rows:
        raise VersionNotFoundError(f"model '{entries[0].name}' has no version {number}")
    return rows


def model_stats(entry: Entry, version: Version, figures: Statistics) -> dict[str, Any]:
    """Return statistics of one version; times are sums in nanoseconds."""
    return {
        "name": entry.name,
        "version": str(version.number),
        "last_inference": 0 if figures.last_request_at is None else int(figures.last_request_at * 1e3),
        "inference_count": figures.items - figures.hits.items,
        "execution_count": figures.runs,
        "inference_stats": _inference(figures),
        "response_stats": {},
        "batch_stats": [_batch(size, batches) for size, batches in sorted(figures.batches.items())],
        "memory_usage": [],
    }


def _inference(figures: Statistics) -> dict[str, Any]:
    sums, count = figures.sums, figures.requests
    return {
        "success": _duration(count, sums.total_s),
        "fail": _duration(figures.failures.total(), figures.failed_s),
        "queue": _duration(count, sums.queue_s),
        **_compute(count - figures.hits.count, sums),
        "cache_hit": _duration(figures.hits.count, figures.hits.seconds),
        "cache_miss": _duration(figures.misses.count, figures.misses.seconds),
    }


def _batch(size: int, batches: Batches) -> dict[str, Any]:
    return {"batch_size": size, **_compute(batches.count, batches.sums)}


def _compute(count: int, sums: Timing) -> dict[str, Any]:
    return {
        "compute_input": _duration(count, sums.decode_s + sums.preprocess_s),
        "compute_infer": _duration(count, sums.infer_s),
        "compute_output": _duration(count, sums.postprocess_s),
    }


def _duration(count: int, seconds: float) -> dict[str, int]:
    return {"count": count, "ns": round(seconds * 1e9)}
