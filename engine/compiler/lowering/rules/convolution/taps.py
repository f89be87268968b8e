"""Which taps of a convolution meet its image: those that lie in the padding throughout are left out.

With a dilation near the size of the image most products are with padding: of 3×3 taps 24 apart over 16×16 pixels only
the one in the middle meets any. Others meet a part of the image; then the output falls into spans whose taps all do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from engine.ir.dims import is_symbolic

# What splitting an axis must save of its products, and pixels that take as long as fewer do.
WORTH = 0.15
FEWEST = 4
# Spans an axis may fall into: each pair of them is a kernel of its own.
MOST_SPANS = 8
# Taps up to which it is looked at exactly which meet the image.
MOST_TAPS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvAxis:
    """One spatial axis of a convolution.

    Args:
        size, count: pixels of the input and of the output.
        before, after: zeros around the input.
    """

    size: int
    count: int
    kernel: int
    stride: int
    dilation: int
    before: int
    after: int

    def live(self, output: int) -> range:
        """The taps of an output pixel that meet the input."""
        origin = output * self.stride - self.before
        first = max(0, -(origin // self.dilation))
        return range(first, max(first, min(self.kernel, (self.size - 1 - origin) // self.dilation + 1)))

    def runs(self) -> Iterator[tuple[int, range]]:
        """Output pixels in a row that meet the same taps: how many, and which; at most two for every tap."""
        output = 0
        while output < self.count:
            taps, following = self.live(output), self._change(output)
            yield following - output, taps
            output = following

    def _change(self, output: int) -> int:
        """The next output pixel that may meet other taps."""
        origin = output * self.stride - self.before
        skipped = max(0, -(origin // self.dilation))
        stop = min(self.kernel, (self.size - 1 - origin) // self.dilation + 1)
        changes = [self._first_at((1 - min(skipped, self.kernel)) * self.dilation)] if skipped else []
        if stop > 0:
            changes.append(self._first_at(self.size - (stop - 1) * self.dilation))
        return max(output + 1, min(changes, default=self.count)) if changes else self.count

    def _first_at(self, origin: int) -> int:
        """The first output pixel whose first tap lies there or further on, the last but one at most."""
        return min(self.count, -(-(origin + self.before) // self.stride))


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Some output pixels of an axis, and the taps they are summed over.

    Args:
        start, count: of the pixels.
        first, taps: the first of the taps and their number.
        origin: the input pixel under the first tap of the first pixel; negative before the input.
        after: pixels beyond the input that are read.
    """

    start: int
    count: int
    first: int
    taps: int
    origin: int
    after: int

    @classmethod
    def of(cls, axis: ConvAxis, start: int, count: int, taps: range) -> Span:
        """The span of ``count`` pixels from ``start`` that sum over ``taps``."""
        origin = start * axis.stride + taps.start * axis.dilation - axis.before
        last = origin + (count - 1) * axis.stride + (len(taps) - 1) * axis.dilation
        return cls(
            start=start,
            count=count,
            first=taps.start,
            taps=len(taps),
            origin=origin,
            after=axis.after if is_symbolic(axis.size) else max(0, last - axis.size + 1),
        )

    @property
    def before(self) -> int:
        """Zeros before the input that are read."""
        return max(0, -self.origin)


@lru_cache(maxsize=4096)
def spans(axis: ConvAxis, *, can_split: bool) -> Sequence[Span]:
    """The output of an axis in spans, one of all pixels unless it pays to split; layers of one geometry ask again."""
    if axis.kernel > MOST_TAPS or is_symbolic(axis.size):
        return (Span.of(axis, 0, axis.count, range(axis.kernel)),)
    runs = _merged(axis.runs())
    met = [taps for _, taps in runs if taps]
    if not met:  # zeros everywhere; some tap has to read them
        return (Span.of(axis, 0, axis.count, range(axis.kernel)),)
    whole = range(min(each.start for each in met), max(each.stop for each in met))
    if can_split and axis.dilation > 1 and len(met) == len(runs) and _is_worth(runs, whole):
        return tuple(_split(axis, runs))
    return (Span.of(axis, 0, axis.count, whole),)


def _merged(runs: Iterator[tuple[int, range]]) -> list[tuple[int, range]]:
    """The same with equal neighbours as one."""
    result: list[tuple[int, range]] = []
    for count, taps in runs:
        if result and result[-1][1] == taps:
            result[-1] = result[-1][0] + count, taps
        else:
            result.append((count, taps))
    return result


def _is_worth(runs: Sequence[tuple[int, range]], whole: range) -> bool:
    if len(runs) > MOST_SPANS:
        return False
    products, pixels = sum(max(count, FEWEST) * len(taps) for count, taps in runs), sum(count for count, _ in runs)
    return products <= (1 - WORTH) * pixels * len(whole)


def _split(axis: ConvAxis, runs: Sequence[tuple[int, range]]) -> list[Span]:
    result, start = [], 0
    for count, taps in runs:
        result.append(Span.of(axis, start, count, taps))
        start += count
    return result
