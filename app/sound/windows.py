"""Windows of a wave: the pieces of a sound that a model takes as rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from app.sound.sound import Clip, Wave


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """Division of waves into windows; all counts are samples.

    Attributes:
        size: of a window; None for the whole wave.
        overlap: shared with the window before.
        context: added before each window.
        least: smallest row; shorter ones are padded with zeros.
        is_padded: whether the last window is padded to the size of the others.
        rate: samples per second.
    """

    size: int | None
    overlap: int
    context: int
    least: int
    is_padded: bool
    rate: int

    def spans(self, samples: int) -> list[tuple[int, int]]:
        """Return start and end of each window of a wave."""
        if self.size is None or samples <= self.size:
            return [(0, samples)]
        step = self.size - self.overlap
        count = 1 + -(-(samples - self.size) // step)
        return [(at * step, min(at * step + self.size, samples)) for at in range(count)]

    def whole_spans(self, samples: int) -> list[tuple[int, int]]:
        """Return start and end of the windows that end in a wave which begins with the first one's context."""
        assert self.size is not None  # streams have windows of one size
        starts = range(self.context, samples - self.size + 1, self.size - self.overlap)
        return [(start, start + self.size) for start in starts]

    def groups(self, spans: Iterable[tuple[int, int]], most: int) -> Iterator[list[tuple[int, int]]]:
        """Yield the windows that can run together, at most so many."""
        for _, alike in groupby(spans, key=lambda span: self._length(*span)):
            together = list(alike)
            for at in range(0, len(together), most):
                yield together[at : at + most]

    def rows(self, wave: Wave, spans: list[tuple[int, int]]) -> Wave:
        """Return windows of one length as rows, each with its context."""
        rows = np.zeros((len(spans), self.context + self._length(*spans[0])), np.float32)
        for row, (start, end) in zip(rows, spans, strict=True):
            first = max(start - self.context, 0)
            offset = self.context - (start - first)
            row[offset : offset + end - first] = wave[first:end]
        return rows

    def clip(self, span: tuple[int, int], samples: int | None) -> Clip:
        """Return a window's place in a sound of so many samples; None in a stream, which has no end."""
        start, end = span
        first = start + self.overlap // 2 if start else 0
        last = end - (self.overlap - self.overlap // 2) if samples is None or end < samples else end
        seconds = self._length(start, end) / self.rate
        return Clip(start / self.rate, end / self.rate, seconds, (first / self.rate, last / self.rate))

    def _length(self, start: int, end: int) -> int:
        if self.is_padded and self.size is not None:
            return self.size
        return max(end - start, self.least)
