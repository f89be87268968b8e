"""Counters of versions, summed over processes.

Each process publishes its counters as bytes; the process that is asked sums them. A replaced process passes its
counters on to its successor, so that counters never decrease.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Final, TypeAlias

import orjson

from app.models.registry.version import Entry, Version
from app.models.statistics import Batches, Statistics

# Merged by maximum; all other numbers are summed.
_LATEST: Final = "last_request_at"
# Counters of one process by model and version.
Rows: TypeAlias = Mapping[tuple[str, int], Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionCounters:
    """Counters of a version over all processes."""

    statistics: Statistics
    running: int
    queued: int


class Counters:
    """Counters of versions, including those of other processes.

    Attributes:
        peers: returns the published counters of other processes, and whether each still runs.
        publish: publishes the counters of this process. Called before reporting, so that the next process asked does
            not
            report less.
    """

    def __init__(self) -> None:
        self.peers: Callable[[], Sequence[tuple[bytes, bool]]] = lambda: ()
        self.publish: Callable[[], None] = lambda: None
        self._before: Rows = {}

    def begin(self, left: bytes) -> None:
        """Continue the counters of the predecessor of this process; ``left`` is empty if there was none."""
        self._before = _lasting(from_bytes(left)) if left else {}

    def to_bytes(self, entries: Iterable[Entry]) -> bytes:
        """Return the counters of this process for other processes."""
        rows = [[version.name, version.number, self._row(version)] for entry in entries for version in entry.versions]
        return orjson.dumps(rows, option=orjson.OPT_NON_STR_KEYS)

    def forget(self, name: str) -> None:
        """Discard inherited counters of an unloaded model."""
        self._before = {key: row for key, row in self._before.items() if key[0] != name}

    def read(self) -> Callable[[Version], VersionCounters]:
        """Return a function that returns the present counters of a version."""
        self.publish()
        rows = [(from_bytes(data), is_alive) for data, is_alive in self.peers()]
        left = [found if is_alive else _lasting(found) for found, is_alive in rows]
        if not left and not self._before:
            return _own

        def tell(version: Version) -> VersionCounters:
            row = orjson.loads(orjson.dumps(self._row(version), option=orjson.OPT_NON_STR_KEYS))
            for rows in left:
                row = _added(row, rows.get((version.name, version.number), {}))
            return VersionCounters(
                statistics=_statistics(row["statistics"]), running=row["running"], queued=row["queued"]
            )

        return tell

    def _row(self, version: Version) -> dict[str, Any]:
        row = {
            "statistics": version.statistics,
            "running": version.scheduler.running,
            "queued": version.scheduler.queued,
        }
        before = self._before.get((version.name, version.number))
        if before is None:
            return row
        found: dict[str, Any] = _added(orjson.loads(orjson.dumps(row, option=orjson.OPT_NON_STR_KEYS)), before)
        return found


def from_bytes(data: bytes) -> Rows:
    """Parse the result of ``to_bytes``."""
    return {(name, number): row for name, number, row in orjson.loads(data)}


def _own(version: Version) -> VersionCounters:
    return VersionCounters(
        statistics=version.statistics, running=version.scheduler.running, queued=version.scheduler.queued
    )


def _lasting(rows: Rows) -> Rows:
    """Return the counters that remain valid after a process has ended: nothing runs or waits there."""
    return {key: {**row, "running": 0, "queued": 0} for key, row in rows.items()}


def _added(one: Any, other: Any, key: str = "") -> Any:
    """Return the sum of two rows of the same structure; missing parts count nothing."""
    if one is None or other is None:
        return other if one is None else one
    if isinstance(one, dict):
        return {name: _added(one.get(name), other.get(name), name) for name in {**one, **other}}
    if isinstance(one, list):
        return [_added(a, b) for a, b in zip(one, other, strict=True)]
    if isinstance(one, bool):
        return one or other
    return max(one, other) if key == _LATEST else one + other


def _statistics(row: Mapping[str, Any]) -> Statistics:
    found: Statistics = _like(Statistics(), row)
    found.batches = {int(size): _like(Batches(), each) for size, each in row["batches"].items()}
    return found


def _like(empty: Any, row: Any) -> Any:
    """Rebuild an object of the type of ``empty`` from a row."""
    if is_dataclass(empty) and not isinstance(empty, type):
        return replace(empty, **{each.name: _like(getattr(empty, each.name), row[each.name]) for each in fields(empty)})
    return Counter(row) if isinstance(empty, Counter) else row
