"""Live state of all models, sent by GET /events."""

from __future__ import annotations

import os
import time
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import engine
from app.models.registry.counters import VersionCounters
from app.models.registry.index import details
from app.models.registry.version import Version
from app.models.statistics import TIME_BOUNDS
from app.serving.dataplane import DataPlane

_STATM: Final = Path("/proc/self/statm")
_STARTED: Final = time.time()


def pulse(plane: DataPlane) -> dict[str, Any]:
    """Return details and counters of every model, and of the process; rates are differences of two states."""
    tell = plane.store.counters.read()
    models = []
    for entry in plane.store.entries:
        row = details(entry, plane.store, tell)
        row["labels"] = None if row["labels"] is None else len(row["labels"])
        for version, shown in zip(entry.versions, row["versions"], strict=False):
            shown |= _figures(version, tell(version))
        models.append(row)
    return {
        "at": time.time(),
        "bounds_s": list(TIME_BOUNDS),
        "ready": plane.unready_reason(),
        "process": {"started": _STARTED, "cpu_s": sum(os.times()[:2]), "bytes": _resident(), **_allowed(plane)},
        "models": models,
    }


def _figures(version: Version, counted: VersionCounters) -> dict[str, Any]:
    if version.model is None:
        return {}
    weights, operators = _size(version.model.session)
    return {
        "times": list(counted.statistics.buckets.total),
        "batches": {str(size): batches.count for size, batches in sorted(counted.statistics.batches.items())},
        "weights_bytes": weights,
        "operators": operators,
    }


@lru_cache(maxsize=256)
def _size(session: engine.Session) -> tuple[int, int]:
    """Return the bytes of the weights in the file, and the number of operators."""
    operators = session.graph.operators
    return sum(each.data.nbytes for op in operators for each in op.attributes.values()), len(operators)


def _allowed(plane: DataPlane) -> dict[str, Any]:
    return {"threads": plane.budget.threads, "workers": plane.settings.workers}


def _resident() -> int | None:
    try:
        return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):  # not Linux
        return None
