"""The lines of a graph: one net for each value, from the node that makes it to all that use it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Net:
    """One value: nodes are numbers, targets are distinct, not empty and greater than the source."""

    source: int
    targets: tuple[int, ...]
