"""Connected regions of a mask and the holes in them, as convex hulls.

Rows of the mask become runs of set pixels. Runs that touch get the same label. Pixels that touch at a corner belong to
one region; holes are connected by their sides only. A hole is outlined by the pixels around it, as in OpenCV's
``findContours`` with ``RETR_LIST``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.intp]


class _Spans(NamedTuple):
    """Pixels from left to right, both included, of a row that belongs to a label; each an array (n,)."""

    labels: Ints
    rows: Ints
    left: Ints
    right: Ints

    def of(self, chosen: NDArray[np.generic]) -> _Spans:
        """Return the spans at these indices, or where a mask is true."""
        return _Spans(*(each[chosen] for each in self))


def outlines(mask: NDArray[np.bool_], least: int, most: int) -> list[Ints]:
    """Return the convex hull of each region and hole as (vertices, 2), x and y, clockwise, from the top.

    Args:
        mask: (H, W).
        least: extent in pixels between the outermost centres below which a region is left out, in x and y.
        most: number of outlines, largest bounding box first, if there are more.
    """
    padded = np.pad(mask, 1)
    regions = _spans(padded, reach=1)
    holes = _spans(~padded, reach=0)
    holes = holes.of(holes.labels != holes.labels[0])  # what is connected with the padding is outside
    holes = _around(holes._replace(labels=holes.labels + padded.size))
    spans = _by_row(_Spans(*map(np.concatenate, zip(regions, holes, strict=True))))
    return _hulls(_largest(spans, least, most))


def hulls(labels: Ints, points: Ints) -> list[Ints]:
    """Return the convex hull (vertices, 2) of the points (n, 2) of each label (n,), clockwise, from the top.

    Labels count from 0 without a gap.
    """
    return _hulls(_by_row(_Spans(labels, points[:, 1], points[:, 0], points[:, 0])))


def _spans(mask: NDArray[np.bool_], reach: int) -> _Spans:
    """Return the runs of set pixels in raster order, labelled; columns and rows count from the pixel at (1, 1).

    Args:
        mask: (H, W), padded by one pixel.
        reach: 1 if pixels that touch at a corner are connected, else 0.
    """
    width = mask.shape[1]
    edges = np.zeros((len(mask), width + 1), np.bool_)  # where a row begins, changes and ends
    edges[:, 0], edges[:, -1] = mask[:, 0], mask[:, -1]
    np.not_equal(mask[:, 1:], mask[:, :-1], out=edges[:, 1:-1])
    places = np.flatnonzero(edges)
    rows, columns = np.divmod(places, width + 1)
    starts, ends = columns[::2], columns[1::2]
    return _Spans(_labels(rows[::2], starts, ends, reach), rows[::2] - 1, starts - 1, ends - 2)


def _labels(rows: Ints, starts: Ints, ends: Ints, reach: int) -> Ints:
    """Return for each run the index of the first run that it is connected with."""
    below, step = rows + 1, int(ends.max(initial=0)) + 2
    # Runs of the next row that end behind the start of this one, and start before its end.
    first = np.searchsorted(rows * step + ends, below * step + starts - reach, side="right")
    last = np.searchsorted(rows * step + starts, below * step + ends + reach, side="left")
    counts = np.maximum(last - first, 0)
    upper = np.repeat(np.arange(len(rows)), counts)
    lower = np.arange(len(upper)) + np.repeat(first - np.cumsum(counts) + counts, counts)
    labels = np.arange(len(rows))
    while True:
        low = np.minimum(labels[upper], labels[lower])
        joined = labels.copy()
        np.minimum.at(joined, labels[upper], low)
        np.minimum.at(joined, labels[lower], low)
        while (further := joined[joined]).tobytes() != joined.tobytes():
            joined = further
        if np.array_equal(joined, labels):
            return labels
        labels = joined


def _around(holes: _Spans) -> _Spans:
    """Return spans whose hull is that of the pixels around each hole."""
    across = holes._replace(left=holes.left - 1, right=holes.right + 1)
    rows = [holes._replace(rows=holes.rows + step) for step in (-1, 1)]
    return _Spans(*map(np.concatenate, zip(across, *rows, strict=True)))


def _by_row(spans: _Spans) -> _Spans:
    """Return one span for each label and row, from the outermost left to the outermost right, in that order."""
    if not spans.rows.size:
        return spans
    spans = spans.of(np.lexsort((spans.rows, spans.labels)))
    is_first = np.diff(spans.labels, prepend=-1) != 0
    is_first[1:] |= np.diff(spans.rows) != 0
    firsts = np.flatnonzero(is_first)
    left, right = np.minimum.reduceat(spans.left, firsts), np.maximum.reduceat(spans.right, firsts)
    return _Spans(spans.labels[firsts], spans.rows[firsts], left, right)


def _largest(spans: _Spans, least: int, most: int) -> _Spans:
    """Return the spans of at most ``most`` labels, with labels from 0."""
    firsts = np.flatnonzero(np.diff(spans.labels, prepend=-1))
    if not firsts.size:
        return spans
    counts = np.diff(firsts, append=len(spans.labels))
    widths = np.maximum.reduceat(spans.right, firsts) - np.minimum.reduceat(spans.left, firsts)
    heights = spans.rows[firsts + counts - 1] - spans.rows[firsts]
    areas = np.where(np.minimum(widths, heights) >= least, widths * heights, 0)
    kept = np.zeros(len(firsts), np.bool_)
    kept[np.argsort(-areas, kind="stable")[:most]] = True
    kept &= areas > 0
    numbers = np.repeat(np.cumsum(kept) - 1, counts)
    return spans._replace(labels=numbers).of(np.repeat(kept, counts))


def _hulls(spans: _Spans) -> list[Ints]:
    right = _convex(spans.labels, -spans.right, spans.rows)
    left = _convex(spans.labels, spans.left, spans.rows)
    ends = np.arange(1, int(spans.labels.max(initial=-1)) + 1)
    sides = [
        np.split(np.stack([xs[chosen], spans.rows[chosen]], axis=1), np.searchsorted(spans.labels[chosen], ends))
        for xs, chosen in ((spans.right, right), (spans.left, left))
    ]
    return [np.concatenate([down, up[::-1]]) for down, up in zip(*sides, strict=True) if len(down)]


def _convex(labels: Ints, xs: Ints, rows: Ints) -> Ints:
    """Return the indices of the points on the left side of each label's hull, from top to bottom.

    A point that is not left of the line between two others is no vertex, whichever points they are. Each round removes
    all such points, so there are few rounds.
    """
    kept = np.arange(len(labels))
    while len(kept) > 2:
        before, at, after = kept[:-2], kept[1:-1], kept[2:]
        is_outside = (xs[at] - xs[before]) * (rows[after] - rows[before]) < (xs[after] - xs[before]) * (
            rows[at] - rows[before]
        )
        stays = np.ones(len(kept), np.bool_)
        stays[1:-1] = is_outside | (labels[before] != labels[at]) | (labels[at] != labels[after])
        if stays.all():
            break
        kept = kept[stays]
    return kept
