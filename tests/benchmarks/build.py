"""Made-up records: nothing here was measured."""

from __future__ import annotations

from typing import Any

from benchmarks.record import OURS, Record

MACHINE: dict[str, Any] = {
    "date": "2026-01-02 03:04",
    "processor": "Abacus (no vector extension known)",
    "cores": 2,
    "system": "Linux 0",
    "python": "3.11.0",
    "commit": "abc1234",
    "engines": {OURS: "pnnx-serve 0", "quick": "quick 1", "slow": "slow 2"},
}


def record(engine: str, *times_ms: float, **fields: Any) -> Record:
    where = {"network": "net", "threads": 1, "batch": 1} | fields
    return Record(engine=engine, times_s=[time / 1e3 for time in times_ms], **where)
