"""Models as plain data, for /models and the start-up table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import engine
from app.arrays import dtype_name
from app.models.model import Model
from app.models.registry.counters import VersionCounters
from app.models.registry.store import Store
from app.models.registry.version import Entry, Version


def summaries(store: Store) -> list[dict[str, Any]]:
    """Return one short row per model."""
    default = store.default_name  # evaluated once: it looks at every model
    return [summary(entry, default) for entry in store.entries]


def summary(entry: Entry, default: str | None) -> dict[str, Any]:
    """Return name, task, state and versions, and the reason of a failure."""
    entry.update_tags()
    return {
        "name": entry.name,
        "task": entry.files.config.task,
        "default": entry.name == default,
        "state": entry.state,
        "reason": entry.reason,
        "tags": entry.tags,
        "versions": [_short(version) for version in entry.versions],
    }


def details(entry: Entry, store: Store, tell: Callable[[Version], VersionCounters] | None = None) -> dict[str, Any]:
    """Return the summary with inputs, outputs, labels, preprocessing and counters.

    Inputs and outputs at the top level are those of the default version.

    Args:
        entry: model.
        store: store of the model.
        tell: result of ``store.counters.read()``, for callers that ask for many models.
    """
    running = [version for version in entry.versions if version.model is not None]
    current = running[-1] if running else None
    tell = store.counters.read() if tell is None else tell
    pipeline = entry.files.pipeline
    steps = {} if pipeline is None else {"steps": [step.as_dict() for step in pipeline.step]}
    return {
        **summary(entry, store.default_name),
        "inputs": _ports(current, "inputs"),
        "outputs": _ports(current, "outputs"),
        "labels": None if entry.files.labels is None else list(entry.files.labels),
        "preprocess": _preprocess(current),
        "text": _text(current),
        "sound": _sound(current),
        "sequences": _sequences(current),
        "batching": _batching(current),
        **steps,
        "versions": [_long(version, tell(version)) for version in entry.versions],
    }


def _text(version: Version | None) -> dict[str, Any] | None:
    """Return the limit of a text in tokens, or None if the model takes no texts."""
    inputs = version.model.text_inputs if version is not None and isinstance(version.model, Model) else None
    return None if inputs is None else {"max_tokens": inputs.tokenizer.max_tokens}


def _sound(version: Version | None) -> dict[str, Any] | None:
    """Return the table [sound], and whether a stream of samples can be sent; None if the model takes no sounds."""
    if version is None or version.model is None or version.model.signature.takes("sound") is None:
        return None
    about = {"input": version.model.signature.takes("sound")}
    inputs = version.model.sound_inputs if isinstance(version.model, Model) else None
    if inputs is None:
        return about
    return {**inputs.config.model_dump(mode="json"), **about, "takes_streams": inputs.takes_streams}


def _sequences(version: Version | None) -> dict[str, Any] | None:
    """Return the number of sequences and their limits, or None if the model has no states."""
    sequences = None if version is None or version.model is None else version.model.sequences
    return None if sequences is None else {"active": sequences.active, **sequences.config.model_dump()}


def _short(version: Version) -> dict[str, Any]:
    row: dict[str, Any] = {"version": version.number, "state": version.state, "reason": version.reason}
    if isinstance(version.model, Model):
        session = version.model.session
        row |= {"backend": session.backend, "compile_failure": session.compile_failure}
    if version.model is not None:
        row["remark"] = version.remark
    return row


def _long(version: Version, counted: VersionCounters) -> dict[str, Any]:
    row = _short(version)
    if version.model is not None:
        row |= {
            "inputs": _ports(version, "inputs"),
            "outputs": _ports(version, "outputs"),
            "load_ms": round(version.load_s * 1e3, 1),
            "running": counted.running,
            "queued": counted.queued,
            "batching": _batching(version),
            "statistics": counted.statistics.as_dict(),
        }
    if isinstance(version.model, Model):
        row |= _of_network(version.model)
    return row


def _of_network(model: Model) -> dict[str, Any]:
    session, cache = model.session, model.response_cache
    row: dict[str, Any] = {
        "compiler_defects": session.describe_defects(),
        "threads": session.threads,
        "precision": model.precision,
    }
    if cache is not None:
        row["response_cache"] = {"max_bytes": cache.max_bytes, "bytes": cache.held_bytes, "entries": cache.entries}
    return row


def _batching(version: Version | None) -> dict[str, Any]:
    """Return whether requests share runs, the reason, the measurements, and the limits of batch sizes reached."""
    if version is None or not isinstance(version.model, Model):
        return {"enabled": False}
    batcher = version.model.batcher
    return {
        "enabled": batcher.verdict.enabled,
        "reason": batcher.verdict.reason,
        "is_final": batcher.verdict.is_final,
        "max_batch_size": batcher.config.most,
        "batch_sizes": list(batcher.sizes),
        "max_queue_delay_us": batcher.config.max_queue_delay_us,
        "latency_ms": {str(size): round(seconds * 1e3, 4) for size, seconds in batcher.verdict.latency_s.items()},
        "limits": dict(version.scheduler.reasons),
    }


def _ports(version: Version | None, side: str) -> list[dict[str, Any]]:
    if version is None or version.model is None:
        return []
    return [port_row(port) for port in getattr(version.model.signature, side)]


def port_row(port: engine.Port) -> dict[str, Any]:
    """Return ``{"name", "shape", "dtype"}``; null for dynamic dimensions and unknown shapes.

    Adds ``size_names`` if the file names dynamic dimensions.
    """
    if port.spec is None:
        return {"name": port.name, "shape": None, "dtype": None}
    names = {"size_names": list(port.size_names)} if port.size_names else {}
    return {"name": port.name, "shape": list(port.spec.shape), "dtype": dtype_name(port.spec.dtype), **names}


def _preprocess(version: Version | None) -> dict[str, Any] | None:
    if version is None or version.model is None or version.model.signature.takes("picture") is None:
        return None
    if not isinstance(version.model, Model):
        return {"input": version.model.signature.takes("picture")}
    preprocessor = version.model.preprocessor
    assert preprocessor is not None  # the model has a picture input
    return {"input": preprocessor.port.name, **preprocessor.config.model_dump(mode="json")}
