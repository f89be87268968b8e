"""Layers of nodes, their order and place, and the layered graph in which every line joins neighbouring layers.

A node is below everything it depends on, and as close to what it feeds as possible. Where a line passes a layer it has
a waypoint.

Vertices joined by straight lines form a column with one x. Between two layers, lines between waypoints are chosen
first, then those of the longest chains of nodes, as far as they do not cross (after Brandes and Köpf, 2002; chains are
preferred so that a network's trunk stays straight and its skip connections bend). Columns that do not cross have an
order from left to right, so each can be moved separately.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

# Limit of waypoints in a graph of n nodes: n times the first plus the second. Typical networks need fewer than n.
_WAYPOINTS_EACH: Final = 6
_WAYPOINTS_FREE: Final = 1000
_MOST_ROUNDS: Final = 24
_PATIENCE: Final = 4
# Limit of visited vertices, so that large graphs get fewer rounds rather than more time.
_EFFORT: Final = 150_000
NODE_GAP: Final = 28.0
WAYPOINT_GAP: Final = 14.0
_ROUNDS: Final = 12


@dataclass(frozen=True, slots=True)
class Net:
    """A value: nodes are numbers; targets are distinct, not empty and greater than the source."""

    source: int
    targets: tuple[int, ...]


def assign_layers(count: int, nets: Sequence[Net], roots: frozenset[int]) -> list[int]:
    """Return the layer of each node 0..count-1, every source above its targets.

    Args:
        count: number of nodes.
        nets: every target has a greater number than its source, since nodes are numbered in execution order.
        roots: nodes at the top. Nodes that do not depend on them, mostly constants, are drawn where they are used.
    """
    layers = _longest_paths(count, nets)
    _pull_down(layers, nets, _floating(count, nets, roots))
    return _without_gaps(layers)


def _longest_paths(count: int, nets: Sequence[Net]) -> list[int]:
    layers = [0] * count
    for net in sorted(nets, key=lambda net: net.source):
        for target in net.targets:
            layers[target] = max(layers[target], layers[net.source] + 1)
    return layers


def _floating(count: int, nets: Sequence[Net], roots: frozenset[int]) -> set[int]:
    """Return nodes to draw low: more lines leave than enter them, or they depend on no root."""
    rooted = [node in roots for node in range(count)]
    surplus = [0] * count
    for net in sorted(nets, key=lambda net: net.source):
        surplus[net.source] += 1
        for target in net.targets:
            rooted[target] |= rooted[net.source]
            surplus[target] -= 1
    return {node for node in range(count) if node not in roots and (surplus[node] > 0 or not rooted[node])}


def _pull_down(layers: list[int], nets: Sequence[Net], floating: set[int]) -> None:
    last_first = sorted(nets, key=lambda net: net.source, reverse=True)
    for source, group in groupby(last_first, key=lambda net: net.source):
        if source in floating:
            layers[source] = min(layers[target] for net in group for target in net.targets) - 1


def _without_gaps(layers: list[int]) -> list[int]:
    used = {layer: rank for rank, layer in enumerate(sorted(set(layers)))}
    return [used[layer] for layer in layers]


@dataclass(slots=True)
class Skeleton:
    """Layered graph; vertices below ``nodes`` are nodes, the others waypoints.

    Args:
        rows: vertices of each layer, from left to right.
        layer: layer of each vertex.
        above, below: vertices joined to each vertex in the layer above and below.
        trees: per net the lines between neighbouring layers, upper vertex first.
        detours: per net the targets that are too far away for waypoints.
    """

    nodes: int
    layer: list[int]
    rows: list[list[int]]
    above: list[list[int]]
    below: list[list[int]]
    trees: list[list[tuple[int, int]]] = field(default_factory=list)
    detours: list[tuple[int, ...]] = field(default_factory=list)

    def is_waypoint(self, vertex: int) -> bool:
        """Return whether the vertex is a waypoint."""
        return vertex >= self.nodes


def build_skeleton(layers: Sequence[int], nets: Sequence[Net]) -> Skeleton:
    """Return the layered graph of nodes in given layers; rows are in the order of a walk along the lines."""
    count = len(layers)
    skeleton = Skeleton(
        nodes=count,
        layer=list(layers),
        rows=[[] for _ in range(max(layers, default=-1) + 1)],
        above=[[] for _ in range(count)],
        below=[[] for _ in range(count)],
    )
    direct = _affordable(layers, nets)
    for number, net in enumerate(nets):
        near = [t for t in net.targets if number in direct or layers[t] == layers[net.source] + 1]
        skeleton.trees.append(_tree(skeleton, net.source, near))
        skeleton.detours.append(tuple(target for target in net.targets if target not in near))
    _fill_rows(skeleton)
    return skeleton


def _affordable(layers: Sequence[int], nets: Sequence[Net]) -> set[int]:
    """Return the nets that get waypoints: the shortest first, until the limit is reached."""
    left = _WAYPOINTS_EACH * len(layers) + _WAYPOINTS_FREE
    spans = sorted((max(layers[t] for t in net.targets) - layers[net.source], i) for i, net in enumerate(nets))
    chosen = set()
    for span, number in spans:
        left -= span - 1
        if left < 0:
            break
        chosen.add(number)
    return chosen


def _tree(skeleton: Skeleton, source: int, targets: Sequence[int]) -> list[tuple[int, int]]:
    """Add a trunk of waypoints down to the last target, and join each target to the trunk; return the lines."""
    if not targets:
        return []
    top = skeleton.layer[source]
    trunk = [source]
    for layer in range(top + 1, max(skeleton.layer[target] for target in targets)):
        trunk.append(_add_waypoint(skeleton, layer))
    lines = list(zip(trunk, trunk[1:], strict=False))
    lines += [(trunk[skeleton.layer[target] - top - 1], target) for target in targets]
    for upper, lower in lines:
        skeleton.below[upper].append(lower)
        skeleton.above[lower].append(upper)
    return lines


def _add_waypoint(skeleton: Skeleton, layer: int) -> int:
    skeleton.layer.append(layer)
    skeleton.above.append([])
    skeleton.below.append([])
    return len(skeleton.layer) - 1


def _fill_rows(skeleton: Skeleton) -> None:
    seen = [False] * len(skeleton.layer)
    for start in range(skeleton.nodes):
        stack = [start] if not skeleton.above[start] else []
        while stack:
            vertex = stack.pop()
            if not seen[vertex]:
                seen[vertex] = True
                skeleton.rows[skeleton.layer[vertex]].append(vertex)
                stack.extend(reversed(skeleton.below[vertex]))


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
