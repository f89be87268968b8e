"""Means of a map inside quadrilaterals, of the pixels that OpenCV's ``fillPoly`` sets for truncated corners.

These are the pixels whose centres lie inside, and those of the four sides drawn as lines. Sides are clipped to the
part of the map around the quadrilateral before they are drawn, which moves some of their pixels.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.tasks.images.detection.rectangles import Floats
from app.tasks.images.detection.regions import Ints

# Fractional bits of the column where a side crosses a row.
_BITS: Final = 16


class _Sides(NamedTuple):
    """Sides of quadrilaterals from (x0, y0) to (x1, y1), with the last row and column; each an array (sides,)."""

    x0: Ints
    y0: Ints
    x1: Ints
    y1: Ints
    right: Ints
    bottom: Ints


def mean_inside(values: NDArray[np.float32], quadrilaterals: Floats) -> Floats:
    """Return the mean value (n,) inside convex quadrilaterals (n, 4, 2); 0 if no pixel of the map is inside."""
    height, width = values.shape
    last = np.array([width - 1, height - 1])
    origin = np.clip(np.floor(quadrilaterals.min(axis=1)), 0, last).astype(np.intp)
    extent = np.clip(np.ceil(quadrilaterals.max(axis=1)), 0, last).astype(np.intp) - origin
    corners = np.trunc(quadrilaterals - origin[:, None]).astype(np.intp)
    ends = np.concatenate([np.roll(corners, 1, axis=1), corners], axis=2).reshape(-1, 4)
    sides = _Sides(*ends.T, *np.repeat(extent, 4, axis=0).T)
    heights = extent[:, 1] + 1
    firsts = np.cumsum(heights) - heights  # of each quadrilateral's rows
    left, right = np.full(heights.sum(), width), np.full(heights.sum(), -1)
    clipped = _clipped(sides)
    for side, lines, columns_left, columns_right in (_crossings(sides, clipped), _lines(clipped)):
        places = firsts[side // 4] + lines
        np.minimum.at(left, places, columns_left)
        np.maximum.at(right, places, columns_right)
    owner = np.repeat(np.arange(len(heights)), heights)
    left, right = np.maximum(left, 0), np.minimum(right, extent[owner, 0])
    counts = np.maximum(right - left + 1, 0)
    rows = np.arange(len(owner)) - firsts[owner] + origin[owner, 1]
    top, end = rows.min(initial=height), rows.max(initial=-1) + 1
    sums = np.zeros(max(end - top, 0) * width + 1)  # of all pixels before
    sums[1:] = values[top:end].ravel()
    np.cumsum(sums, out=sums)
    starts = (rows - top) * width + origin[owner, 0] + np.where(counts > 0, left, 0)
    totals = sums[starts + counts] - sums[starts]
    found: Floats = np.bincount(owner, totals, len(heights)) / np.maximum(np.bincount(owner, counts, len(heights)), 1)
    return found


def _crossings(sides: _Sides, clipped: _Sides) -> tuple[Ints, Ints, Ints, Ints]:
    """Return side, row, and the first column to the right and last one to the left of each crossing with a row.

    Slopes are those of the clipped sides.
    """
    ax, ay, bx, by = np.where(clipped.y0 == clipped.y1, sides[:4], clipped[:4])
    slopes = np.trunc(((bx - ax) << _BITS) / np.where(ay == by, 1, by - ay)).astype(np.intp)
    side, step = _counted(np.abs(sides.y1 - sides.y0))
    rows = np.minimum(sides.y0, sides.y1)[side] + step
    inside = (rows >= 0) & (rows <= sides.bottom[side])
    side, rows = side[inside], rows[inside]
    columns = (ax[side] << _BITS) + slopes[side] * (rows - ay[side])
    return side, rows, (columns + (1 << _BITS) - 1) >> _BITS, columns >> _BITS


def _lines(clipped: _Sides) -> tuple[Ints, Ints, Ints, Ints]:
    """Return side, row, and twice the column of each pixel of the sides inside, by Bresenham's algorithm."""
    x0, y0, x1, y1, right, bottom = clipped
    is_inside = (np.minimum(x0, x1) >= 0) & (np.minimum(y0, y1) >= 0)
    is_inside &= (np.maximum(x0, x1) <= right) & (np.maximum(y0, y1) <= bottom)
    swapped = x1 < x0
    x0, x1, y0, y1 = np.where(swapped, (x1, x0, y1, y0), (x0, x1, y0, y1))
    across, down = x1 - x0, np.abs(y1 - y0)
    longer, shorter = np.maximum(across, down), np.minimum(across, down)
    side, step = _counted(np.where(is_inside, longer + 1, 0))
    aside = np.maximum(2 * shorter[side] * step + longer[side] - 1, 0) // np.maximum(2 * longer[side], 1)
    is_flat = (across >= down)[side]
    columns = x0[side] + np.where(is_flat, step, aside)
    return side, y0[side] + np.where(is_flat, aside, step) * np.where(y1 >= y0, 1, -1)[side], columns, columns


def _clipped(sides: _Sides) -> _Sides:
    """Return sides with their ends moved to the edges of their part of the map, first rows, then columns.

    A side that lies outside has an end outside.
    """
    x0, y0, x1, y1, right, bottom = sides
    x0, y0 = _moved(x0, y0, x1, y1, bottom)
    x1, y1 = _moved(x1, y1, x0, y0, bottom)
    y0, x0 = _moved(y0, x0, y1, x1, right)
    y1, x1 = _moved(y1, x1, y0, x0, right)
    return _Sides(x0, y0, x1, y1, right, bottom)


def _moved(along: Ints, across: Ints, other_along: Ints, other_across: Ints, last: Ints) -> tuple[Ints, Ints]:
    """Return one end of each side, moved along the side until ``across`` is in 0 to ``last``, if it crosses there."""
    edge = np.clip(across, 0, last)
    is_out = (edge != across) & ~((across < 0) & (other_across < 0)) & ~((across > last) & (other_across > last))
    span = np.where(is_out, other_across - across, 1)
    moved = along + np.trunc((edge - across) * (other_along - along) / span).astype(np.intp)
    return np.where(is_out, moved, along), np.where(is_out, edge, across)


def _counted(counts: Ints) -> tuple[Ints, Ints]:
    """Return for each of ``counts`` as many times its index, and the numbers from 0 up."""
    index = np.repeat(np.arange(len(counts)), counts)
    return index, np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts)
