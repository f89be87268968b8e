"""The x of every vertex: straight columns first, then as close to their neighbours as the boxes allow.

Vertices joined by straight lines form a column with one x. Between two layers, lines between waypoints are chosen
first, then those of the longest chains of nodes, as far as they do not cross (after Brandes and Köpf, 2002; chains are
preferred so that a network's trunk stays straight and its skip connections bend). Columns that do not cross have an
order from left to right, so each can be moved separately.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from app.render.layout.layers import Skeleton

NODE_GAP: Final = 28.0
WAYPOINT_GAP: Final = 14.0
_ROUNDS: Final = 12


@dataclass(slots=True)
class _Columns:
    """Column of each vertex, and per column its left and right neighbours with minimum distances."""

    of: list[int]
    left: list[list[tuple[int, float]]]
    right: list[list[tuple[int, float]]]
    joined: list[list[int]]


def place(skeleton: Skeleton, widths: Sequence[float]) -> list[float]:
    """Return the centres of all vertices; boxes of a layer keep their distance, and the leftmost begins at 0."""
    columns = _columns(skeleton, widths)
    order = _left_to_right(columns)
    x = _pushed_left(columns, order)
    for number in range(_ROUNDS):
        _pull(columns, reversed(order) if number % 2 == 0 else order, x)
    centres = [x[column] for column in columns.of]
    edge = min((centre - widths[v] / 2 for v, centre in enumerate(centres)), default=0.0)
    return [centre - edge for centre in centres]


def _columns(skeleton: Skeleton, widths: Sequence[float]) -> _Columns:
    of = _column_numbers(skeleton)
    count = max(of, default=-1) + 1
    columns = _Columns(of, [[] for _ in range(count)], [[] for _ in range(count)], [[] for _ in range(count)])
    for row in skeleton.rows:
        for a, b in zip(row, row[1:], strict=False):
            distance = (widths[a] + widths[b]) / 2 + _gap(skeleton, a, b)
            columns.right[of[a]].append((of[b], distance))
            columns.left[of[b]].append((of[a], distance))
        for upper in row:
            for lower in skeleton.below[upper]:
                if of[upper] != of[lower]:
                    columns.joined[of[upper]].append(of[lower])
                    columns.joined[of[lower]].append(of[upper])
    return columns


def _gap(skeleton: Skeleton, a: int, b: int) -> float:
    return WAYPOINT_GAP if skeleton.is_waypoint(a) or skeleton.is_waypoint(b) else NODE_GAP


def _column_numbers(skeleton: Skeleton) -> list[int]:
    column = [-1] * len(skeleton.layer)
    length: list[int] = []
    remaining = _remaining_layers(skeleton)
    for row, lower_row in zip(skeleton.rows, [*skeleton.rows[1:], []], strict=False):
        for vertex in row:
            if column[vertex] < 0:
                column[vertex] = len(length)
                length.append(1)
        for upper, lower in _straight_lines(skeleton, row, lower_row, remaining, [length[column[v]] for v in row]):
            column[lower] = column[upper]
            length[column[upper]] += 1
    return column


def _remaining_layers(skeleton: Skeleton) -> list[int]:
    """Return per vertex the number of layers of the longest path below it."""
    remaining = [0] * len(skeleton.layer)
    for row in reversed(skeleton.rows):
        for vertex in row:
            remaining[vertex] = 1 + max((remaining[lower] for lower in skeleton.below[vertex]), default=0)
    return remaining


def _straight_lines(
    skeleton: Skeleton, row: list[int], lower_row: list[int], remaining: list[int], length: list[int]
) -> list[tuple[int, int]]:
    """Return the straight lines between two rows: at most one per vertex, none crossing, the most important first."""
    place_below = {vertex: place for place, vertex in enumerate(lower_row)}
    lines = []
    for place, upper in enumerate(row):
        ends = sorted(skeleton.below[upper], key=place_below.__getitem__)
        for number, lower in enumerate(ends):
            kind = _importance(skeleton, upper, lower)
            off_centre = abs(number - (len(ends) - 1) / 2)
            lines.append((-kind, -remaining[lower], -length[place], off_centre, place, place_below[lower]))
    chosen: list[tuple[int, int]] = []
    for *_, place, below in sorted(lines):
        at = bisect_left(chosen, (place, below))
        before, after = chosen[at - 1 : at], chosen[at : at + 1]
        if all(a < place and b < below for a, b in before) and all(a > place and b > below for a, b in after):
            chosen.insert(at, (place, below))
    return [(row[a], lower_row[b]) for a, b in chosen]


def _importance(skeleton: Skeleton, upper: int, lower: int) -> int:
    if skeleton.is_waypoint(upper) != skeleton.is_waypoint(lower):
        return 0
    return 2 if skeleton.is_waypoint(upper) else 1


def _left_to_right(columns: _Columns) -> list[int]:
    waiting = [len(neighbours) for neighbours in columns.left]
    ready = deque(column for column, count in enumerate(waiting) if not count)
    order = []
    while ready:
        column = ready.popleft()
        order.append(column)
        for neighbour, _ in columns.right[column]:
            waiting[neighbour] -= 1
            if not waiting[neighbour]:
                ready.append(neighbour)
    return order


def _pushed_left(columns: _Columns, order: list[int]) -> list[float]:
    x = [0.0] * len(order)
    for column in order:
        x[column] = max((x[other] + distance for other, distance in columns.left[column]), default=0.0)
    return x


def _pull(columns: _Columns, order: Iterable[int], x: list[float]) -> None:
    """Move each column to the mean of those it is joined to, as far as its neighbours allow."""
    for column in order:
        joined = columns.joined[column]
        if joined:
            wanted = sum(x[other] for other in joined) / len(joined)
            lowest = max((x[other] + distance for other, distance in columns.left[column]), default=-math.inf)
            highest = min((x[other] - distance for other, distance in columns.right[column]), default=math.inf)
            x[column] = max(lowest, min(wanted, highest))
