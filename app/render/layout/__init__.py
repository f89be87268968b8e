"""Layout of a directed graph, after Sugiyama, Tagawa and Toda (1981).

The steps are:

    layers      each node gets a layer below all nodes it depends on; lines that pass layers get a waypoint in each, and
                lines of one source share them
                nodes are reordered within their layers to reduce crossings
                x: chains of nodes become straight columns, boxes keep their distance
    lay_out     y, and the lines

The time is close to linear in boxes and waypoints, and the number of waypoints is kept linear in the boxes: the
longest lines of a graph with too many are led around its side. The result depends only on the arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from app.render.layout.layers import WAYPOINT_GAP, Net, Skeleton, assign_layers, build_skeleton, order_rows, place

__all__ = ["Box", "Layout", "Net", "Route", "lay_out"]

_LAYER_GAP: Final = 30.0
# Lines that go far to the side need height, so that they do not run flat over the boxes.
_SLOPE: Final = 0.07
_MOST_EXTRA: Final = 70.0
_WAYPOINT_WIDTH: Final = 4.0

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Box:
    """Rectangle in pixels: x, y of its upper left corner; y grows downwards."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Route:
    """Line of a net.

    Args:
        strokes: polylines that connect the source to every target. Two points at the same x or y are joined by a
            straight line, others by a curve that starts and ends vertically.
        heads: where the line enters targets, from above.
    """

    strokes: tuple[tuple[Point, ...], ...]
    heads: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Boxes in the order of the nodes, routes in the order of the nets."""

    boxes: tuple[Box, ...]
    routes: tuple[Route, ...]
    width: float
    height: float


def lay_out(sizes: Sequence[tuple[float, float]], nets: Sequence[Net], roots: Iterable[int] = ()) -> Layout:
    """Arrange nodes from top to bottom along the lines between them.

    Args:
        sizes: width and height of every node's box, in pixels.
        nets: lines; nodes are indices into ``sizes``, numbered in execution order.
        roots: nodes where the flow begins; nodes that do not depend on them are drawn close to their use.
    """
    layers = assign_layers(len(sizes), nets, frozenset(roots))
    skeleton = build_skeleton(layers, nets)
    order_rows(skeleton)
    waypoints = len(skeleton.layer) - len(sizes)
    centres = place(skeleton, [width for width, _ in sizes] + [_WAYPOINT_WIDTH] * waypoints)
    bands = _bands(skeleton, centres, [height for _, height in sizes])
    return _Drawing(skeleton, sizes, centres, bands).finish(nets)


def _bands(skeleton: Skeleton, centres: Sequence[float], heights: Sequence[float]) -> list[tuple[float, float]]:
    """Return top and height of every layer."""
    bands = []
    top = 0.0
    for row in skeleton.rows:
        height = max((heights[v] for v in row if not skeleton.is_waypoint(v)), default=0.0)
        bands.append((top, height))
        reach = max((abs(centres[v] - centres[w]) for v in row for w in skeleton.below[v]), default=0.0)
        top += height + _LAYER_GAP + min(_MOST_EXTRA, _SLOPE * reach)
    return bands


@dataclass(frozen=True, slots=True)
class _Drawing:
    skeleton: Skeleton
    sizes: Sequence[tuple[float, float]]
    centres: Sequence[float]
    bands: Sequence[tuple[float, float]]

    def finish(self, nets: Sequence[Net]) -> Layout:
        boxes = tuple(self._box(node) for node in range(len(self.sizes)))
        inner = max((box.x + box.width for box in boxes), default=0.0)
        inner = max(inner, *self.centres) if self.centres else inner
        routes = []
        lanes = 0
        for net, tree, far in zip(nets, self.skeleton.trees, self.skeleton.detours, strict=True):
            lanes += bool(far)
            routes.append(self._route(net.source, tree, far, inner + WAYPOINT_GAP * lanes))
        height = max((box.y + box.height for box in boxes), default=0.0)
        return Layout(boxes, tuple(routes), inner + WAYPOINT_GAP * lanes, height)

    def _box(self, node: int) -> Box:
        width, height = self.sizes[node]
        top, band = self.bands[self.skeleton.layer[node]]
        return Box(self.centres[node] - width / 2, top + (band - height) / 2, width, height)

    def _route(self, source: int, tree: list[tuple[int, int]], far: tuple[int, ...], lane: float) -> Route:
        below: dict[int, list[int]] = {}
        for upper, lower in tree:
            below.setdefault(upper, []).append(lower)
        strokes = [stroke for start in below.get(source, ()) for stroke in self._strokes(source, start, below)]
        strokes += [self._detour(source, target, lane) for target in far]
        targets = [lower for _, lower in tree if not self.skeleton.is_waypoint(lower)]
        return Route(tuple(map(_simplified, strokes)), tuple(self._entry(target) for target in (*targets, *far)))

    def _strokes(self, upper: int, lower: int, below: dict[int, list[int]]) -> list[list[Point]]:
        """Return the stroke from a vertex down to the end of a branch, and those of the branches it passes."""
        stroke = self._exit(upper)
        others: list[list[Point]] = []
        while True:
            stroke += self._passage(lower)
            following = below.get(lower, []) if self.skeleton.is_waypoint(lower) else []
            if not following:
                return [stroke, *others]
            for branch in following[1:]:
                others += [self._exit(lower)[-1:] + self._passage(branch)]
            lower = following[0]

    def _exit(self, vertex: int) -> list[Point]:
        """Return points from the bottom of a vertex to the bottom of its layer."""
        bottom = sum(self.bands[self.skeleton.layer[vertex]])
        if self.skeleton.is_waypoint(vertex):
            return [(self.centres[vertex], bottom)]
        box = self._box(vertex)
        return [(self.centres[vertex], box.y + box.height), (self.centres[vertex], bottom)]

    def _passage(self, vertex: int) -> list[Point]:
        """Return points from the top of a vertex's layer through a waypoint, or to the top of a node."""
        x = self.centres[vertex]
        top, height = self.bands[self.skeleton.layer[vertex]]
        return [(x, top), (x, top + height)] if self.skeleton.is_waypoint(vertex) else [(x, top), self._entry(vertex)]

    def _entry(self, node: int) -> Point:
        return (self.centres[node], self._box(node).y)

    def _detour(self, source: int, target: int, lane: float) -> list[Point]:
        """Return points to the side below the source's layer, down, and back above the target's."""
        leave = self._exit(source)
        out, back = leave[-1][1] + _LAYER_GAP / 3, self.bands[self.skeleton.layer[target]][0] - _LAYER_GAP / 3
        x, y = self._entry(target)
        return [*leave, (leave[0][0], out), (lane, out), (lane, back), (x, back), (x, y)]


def _simplified(stroke: list[Point]) -> tuple[Point, ...]:
    """Return the stroke without points on a vertical line between others."""
    kept: list[Point] = []
    for point in stroke:
        if kept and point == kept[-1]:
            continue
        if len(kept) > 1 and kept[-2][0] == kept[-1][0] == point[0]:
            kept.pop()
        kept.append(point)
    return tuple(kept)
