"""Which taps of a convolution meet its image: those that lie in the padding throughout are left out.

With a dilation near the size of the image most products are with padding: of 3×3 taps 24 apart over 16×16 pixels only
the one in the middle meets any. Others meet a part of the image; then the output falls into spans whose taps all do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

# What splitting an axis must save of its products, and pixels that every span must have.
WORTH = 0.15
FEWEST = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One spatial axis of a convolution.

    Args:
        size, count: pixels of the input and of the output.
        before: zeros before the input.
    """

    size: int
    count: int
    kernel: int
    stride: int
    dilation: int
    before: int

    def live(self, output: int) -> range:
        """The taps of an output pixel that meet the input."""
        origin = output * self.stride - self.before
        first = max(0, -(origin // self.dilation))
        return range(first, max(first, min(self.kernel, (self.size - 1 - origin) // self.dilation + 1)))


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
    def of(cls, axis: Axis, start: int, count: int, taps: range) -> Span:
        """The span of ``count`` pixels from ``start`` that sum over ``taps``."""
        origin = start * axis.stride + taps.start * axis.dilation - axis.before
        last = origin + (count - 1) * axis.stride + (len(taps) - 1) * axis.dilation
        return cls(
            start=start,
            count=count,
            first=taps.start,
            taps=len(taps),
            origin=origin,
            after=max(0, last - axis.size + 1),
        )

    @property
    def before(self) -> int:
        """Zeros before the input that are read."""
        return max(0, -self.origin)


def spans(axis: Axis, *, can_split: bool) -> list[Span]:
    """The output of an axis in spans, one of all pixels unless it pays to split."""
    lives = [axis.live(output) for output in range(axis.count)]
    met = [each for each in lives if each]
    if not met:  # zeros everywhere; some tap has to read them
        return [Span.of(axis, 0, axis.count, range(axis.kernel))]
    whole = range(min(each.start for each in met), max(each.stop for each in met))
    if can_split and axis.dilation > 1 and len(met) == len(lives) and _is_worth(lives, whole):
        return _split(axis, lives)
    return [Span.of(axis, 0, axis.count, whole)]


def _is_worth(lives: Sequence[range], whole: range) -> bool:
    fewest = min(len(list(group)) for _, group in groupby(lives))
    return fewest >= FEWEST and sum(map(len, lives)) <= (1 - WORTH) * len(lives) * len(whole)


def _split(axis: Axis, lives: Sequence[range]) -> list[Span]:
    result, start = [], 0
    for taps, group in groupby(lives):
        count = len(list(group))
        result.append(Span.of(axis, start, count, taps))
        start += count
    return result
