"""Rectangles of any angle around convex polygons, to the bit as OpenCV's ``minAreaRect`` and ``boxPoints`` have them.

DBNet's original truncates corners to whole pixels, so that the last bit of float32 may decide about a pixel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Single = NDArray[np.float32]
Ints = NDArray[np.intp]
# Numbers of a batch of polygons: enough to amortise numpy's calls.
_BATCH: Final = 1 << 16


def smallest_rectangles(polygons: Sequence[Ints], *, from_top: bool) -> Floats:
    """Return the corners (n, 4, 2) of the rectangle of least area around each convex polygon (vertices, 2).

    Args:
        polygons: vertices are integers, in the order right, down, left, up on the screen.
        from_top: OpenCV would have the vertices from the right end of the topmost side on, as of outlines.
    """
    found = np.empty((len(polygons), 4, 2))
    order = sorted(range(len(polygons)), key=lambda index: len(polygons[index]))
    while order:
        most = len(polygons[order[-1]])
        batch = order[-max(1, _BATCH // most) :]
        del order[-len(batch) :]
        vertices = np.stack([_repeated(polygons[index], most) for index in batch])
        found[batch] = _corners(_smallest(vertices, from_top))
    return found


def _repeated(polygon: Ints, length: int) -> Ints:
    """Return the vertices with the last one repeated up to a length."""
    return np.concatenate([polygon, np.repeat(polygon[-1:], length - len(polygon), axis=0)])


class _Rectangles(NamedTuple):
    """Direction of the width (n, 2), size (n, 2), and the products of a corner with width and height (n,)."""

    along: Single
    size: Single
    first: Single
    second: Single


def _smallest(vertices: Ints, from_top: bool) -> _Rectangles:
    """Return the rectangle of least area; one side of it lies on an edge (Freeman and Shapira, 1975).

    Edges are visited in the order in which calipers around the polygon meet them while they turn by 90 degrees. Each
    moves one of the four points that the calipers touch. Of equal areas, the last one counts.
    """
    edges = np.roll(vertices, -1, axis=1) - vertices
    sides = _sides(edges, from_top)
    # Edges turned back by multiples of 90 degrees, and their slopes.
    x, y = (np.select([sides == side for side in range(4)], each) for each in _turned_back(edges))
    slopes = np.where(x > 0, y / np.maximum(x, 1), np.inf)
    around = np.lexsort((slopes, sides))
    visits = np.lexsort((_at(sides, around), _at(slopes, around)))
    chosen = _at(around, visits)
    is_edge = _at(sides, chosen) < 4
    points = np.take_along_axis(vertices, around[..., None], 1).astype(np.float32)
    x, y = _at(x, chosen), _at(y, chosen)
    if from_top:
        y = _with_last_visit(x, y, is_edge, edges)
    inverse = (1 / np.sqrt(np.maximum(x * x + y * y, 1))).astype(np.float32)
    a, b = x.astype(np.float32) * inverse, y.astype(np.float32) * inverse
    low_y, high_x, high_y, low_x = (
        np.take_along_axis(points, each[..., None], 1) for each in _touched(_at(sides, chosen))
    )
    across, down = high_x - low_x, high_y - low_y
    width, height = across[..., 0] * a + across[..., 1] * b, -down[..., 0] * b + down[..., 1] * a
    areas = np.where(is_edge, width * height, np.inf)
    best = areas.shape[1] - 1 - areas[:, ::-1].argmin(axis=1, keepdims=True)
    a, b, width, height = (_at(each, best)[:, 0] for each in (a, b, width, height))
    left, low = (np.take_along_axis(each, best[..., None], 1)[:, 0] for each in (low_x, low_y))
    first, second = a * left[:, 0] + left[:, 1] * b, -b * low[:, 0] + low[:, 1] * a
    return _Rectangles(np.stack([a, b], axis=1), np.stack([width, height], axis=1), first, second)


def _at(values: NDArray[Any], indices: Ints) -> NDArray[Any]:
    return np.take_along_axis(values, indices, 1)


def _sides(edges: Ints, from_top: bool) -> Ints:
    """Return the side of the calipers that meets each edge: 0 at the top of the screen, 1 right, 2, 3; 4 for none.

    A polygon that begins at the right end of the top has its horizontal side at the top met last, by side 3.
    """
    x, y = edges[..., 0], edges[..., 1]
    top = y > 0 if from_top else y >= 0
    conditions = [(x > 0) & top, (y > 0) & (x <= 0), (x < 0) & (y <= 0), (y < 0) | ((x > 0) & (y == 0))]
    return np.select(conditions, [0, 1, 2, 3], 4)


def _turned_back(edges: Ints) -> tuple[list[Ints], list[Ints]]:
    """Return x and y of edges turned back by 0, 90, 180 and 270 degrees."""
    x, y = edges[..., 0], edges[..., 1]
    return [x, y, -x, -y], [y, -x, -y, x]


def _with_last_visit(x: Ints, y: Ints, is_edge: NDArray[np.bool_], edges: Ints) -> Ints:
    """Return ``y`` with the length of another axis-aligned side at the last visit, if calipers would meet that first.

    All four are met at the same angle; rounding decides.
    """
    last = is_edge.sum(axis=1, keepdims=True) - 1
    ex, ey = edges[..., 0], edges[..., 1]
    lengths = np.stack(
        [
            np.where((ex == 0) & (ey > 0), ey, 0).sum(axis=1),
            np.where((ey == 0) & (ex < 0), -ex, 0).sum(axis=1),
            np.where((ex == 0) & (ey < 0), -ey, 0).sum(axis=1),
            np.where((ey == 0) & (ex > 0), ex, 0).sum(axis=1),
        ],
        axis=1,
    )
    before = _at(y, np.maximum(last - 1, 0)).astype(np.float32), _at(x, np.maximum(last - 1, 0))
    inverse = (1 / np.sqrt(np.maximum(before[0].astype(np.float64) ** 2 + before[1] ** 2, 1))).astype(np.float32)
    products = before[0] * inverse * lengths.astype(np.float32)
    cosines = np.where(lengths > 0, products * (1 / np.maximum(lengths, 1)).astype(np.float32), -1)
    met = _at(lengths, cosines.argmax(axis=1)[:, None])
    changed = y.copy()
    np.put_along_axis(changed, last, np.where((_at(x, last) == 0) & (last >= 0), met, _at(y, last)), 1)
    return changed


def _touched(sides: Ints) -> list[Ints]:
    """Return for each visit the vertices at the sides 0 to 3 after it, in the order around the polygon.

    Args:
        sides: (n, edges), the side that each visited edge moves; 4 if it is none.
    """
    moves = [sides == side for side in range(4)]
    counts = [each.sum(axis=1, keepdims=True) for each in moves]
    total = np.maximum(sum(counts), 1)
    starts = [sum(counts[:side], np.zeros_like(total)) for side in range(4)]
    return [(start + np.cumsum(each, axis=1)) % total for start, each in zip(starts, moves, strict=True)]


def _corners(found: _Rectangles) -> Floats:
    """Return the corners (n, 4, 2), by way of centre, size and angle in degrees."""
    half = np.float32(0.5)
    (a, b), (width, height) = found.along.T, found.size.T
    inverse = np.float32(1) / (a * a + b * b)
    corner = np.stack([found.first * a - found.second * b, a * found.second + b * found.first]) * inverse
    along, across = np.stack([a, b]) * width, np.stack([-b, a]) * height
    centre = corner + (along + across) * half
    width, height = (np.sqrt((side.astype(np.float64) ** 2).sum(axis=0)).astype(np.float32) for side in (along, across))
    degrees = np.arctan2(along[1].astype(np.float64), along[0].astype(np.float64)) * 180 / np.pi - 90
    is_turned = degrees >= 0
    degrees, width, height = degrees - 90 * is_turned, *np.where(is_turned, (height, width), (width, height))
    angle = degrees.astype(np.float32).astype(np.float64) * np.pi / 180
    cosine, sine = np.cos(angle).astype(np.float32) * half, np.sin(angle).astype(np.float32) * half
    down, right = np.stack([sine * width, -cosine * width]), np.stack([-cosine * height, -sine * height])
    first, second = centre - down + right, centre + down + right
    corners = np.stack([first, second, 2 * centre - first, 2 * centre - second])
    return np.moveaxis(corners, 2, 0).astype(np.float64)


def shorter_sides(rectangles: NDArray[np.number]) -> Floats:
    """Return the length (n,) of the shorter of the two sides at the first corner."""
    sides = rectangles[:, [1, 3]] - rectangles[:, :1].astype(np.float64)
    lengths: Floats = np.hypot(sides[..., 0], sides[..., 1]).min(axis=1)
    return lengths


def in_order(quadrilaterals: Floats) -> Floats:
    """Return corners (n, 4, 2) as top left, top right, bottom right, bottom left.

    The two leftmost corners are the left ones, as in PaddleOCR.
    """
    by_x = np.take_along_axis(quadrilaterals, np.argsort(quadrilaterals[..., :1], axis=1, kind="stable"), axis=1)
    left, right = (
        np.take_along_axis(pair, np.argsort(pair[..., 1:], axis=1, kind="stable"), axis=1)
        for pair in (by_x[:, :2], by_x[:, 2:])
    )
    return np.stack([left[:, 0], right[:, 0], right[:, 1], left[:, 1]], axis=1)
