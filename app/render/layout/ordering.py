"""Order of vertices within their layers: barycentre sweeps, keeping the order with the fewest crossings."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from app.render.layout.layers import Skeleton

_MOST_ROUNDS: Final = 24
_PATIENCE: Final = 4
# Limit of visited vertices, so that large graphs get fewer rounds rather than more time.
_EFFORT: Final = 150_000


def order_rows(skeleton: Skeleton) -> None:
    """Reorder the rows in place to reduce crossings."""
    position = _positions(skeleton)
    best, fewest = [list(row) for row in skeleton.rows], count_crossings(skeleton)
    idle = 0
    for _ in range(max(2, min(_MOST_ROUNDS, _EFFORT // max(1, len(position))))):
        if not fewest or idle == _PATIENCE:
            break
        _sweep(skeleton.rows[1:], skeleton.above, position)
        _sweep(skeleton.rows[-2::-1], skeleton.below, position)
        crossings = count_crossings(skeleton)
        idle = 0 if crossings < fewest else idle + 1
        if crossings < fewest:
            best, fewest = [list(row) for row in skeleton.rows], crossings
    skeleton.rows = best


def count_crossings(skeleton: Skeleton) -> int:
    """Return how many pairs of lines between neighbouring layers cross."""
    position = _positions(skeleton)
    return sum(
        _inversions([p for upper in row for p in sorted(position[lower] for lower in skeleton.below[upper])])
        for row in skeleton.rows
    )


def _sweep(rows: list[list[int]], neighbours: list[list[int]], position: list[int]) -> None:
    """Sort each row by the mean position of its vertices' neighbours; a vertex without any stays about where it is."""
    for row in rows:
        mean = {
            vertex: sum(position[n] for n in neighbours[vertex]) / len(neighbours[vertex])
            if neighbours[vertex]
            else float(position[vertex])
            for vertex in row
        }
        row.sort(key=mean.__getitem__)
        for place, vertex in enumerate(row):
            position[vertex] = place


def _positions(skeleton: Skeleton) -> list[int]:
    position = [0] * len(skeleton.layer)
    for row in skeleton.rows:
        for place, vertex in enumerate(row):
            position[vertex] = place
    return position


def _inversions(sequence: list[int]) -> int:
    seen: list[int] = []
    total = 0
    for item in sequence:
        place = bisect_right(seen, item)
        total += len(seen) - place
        seen.insert(place, item)
    return total
