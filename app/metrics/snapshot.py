"""What a process has to tell at one time, as plain data: it can be sent to another process, and added up.

Counters and histograms of a worker that died are handed on to the one in its place: they never go down.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import orjson

from app.metrics.families import FAMILIES, Kind

Labels: TypeAlias = tuple[str, ...]
# A number; of a histogram a list: the sum, then the count of each bucket.
Value: TypeAlias = "float | list[float]"
Snapshot: TypeAlias = dict[str, dict[Labels, Value]]


def merged(snapshots: Iterable[Snapshot]) -> Snapshot:
    """What several processes say, as one."""
    result: Snapshot = {}
    for snapshot in snapshots:
        for name, values in snapshot.items():
            family, into = FAMILIES[name], result.setdefault(name, {})
            for labels, value in values.items():
                into[labels] = _joined(into[labels], value, family.is_most) if labels in into else value
    return result


def lasting(snapshot: Snapshot) -> Snapshot:
    """What stays true of a process that is no more."""
    return {name: values for name, values in snapshot.items() if FAMILIES[name].kind is not Kind.GAUGE}


def to_bytes(snapshot: Snapshot) -> bytes:
    """The snapshot as bytes that another process can read."""
    # A line a family: reading one holds up the other threads of the process, which compute or answer, for less time.
    return b"\n".join(
        orjson.dumps([name, [[labels, value] for labels, value in rows.items()]]) for name, rows in snapshot.items()
    )


def from_bytes(data: bytes) -> Snapshot:
    """What ``to_bytes`` made."""
    found: Iterator[Any] = map(orjson.loads, data.splitlines())
    return {name: {tuple(labels): value for labels, value in rows} for name, rows in found}


def _joined(one: Value, other: Value, is_most: bool) -> Value:
    if isinstance(one, list) and isinstance(other, list):
        return [a + b for a, b in zip(one, other, strict=True)]
    assert not isinstance(one, list) and not isinstance(other, list)  # both are of one family
    return max(one, other) if is_most else one + other
