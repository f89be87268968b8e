"""Table of what good clients noticed during each attack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.report import NOTHING, table

TITLES = (
    "attack", "server", "pictures answered", "failed", "p50 ms", "p99 ms", "health p99 ms", "health failed",
    "MB before", "MB peak", "MB after", "threads", "files",
)  # fmt: skip


def attack_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the table: a row for every attack and server."""
    return table(TITLES, [_row(row) for row in rows])


def _row(row: Mapping[str, Any]) -> list[str]:
    good, health, memory = row["good"], row["health"], row["memory_mb"]
    return [
        row["attack"],
        row["tree"],
        str(good["answers"]),
        str(good["failed"]),
        _number(good["p50_ms"]),
        _number(good["p99_ms"]),
        _number(health["p99_ms"]),
        str(health["failed"]),
        *(_number(memory[when]) if memory[when] else "gone" for when in ("start", "peak", "after")),
        str(row["threads"]),
        str(row["files"]),
    ]


def _number(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.3g}" if value < 100 else f"{value:.0f}"
