"""Shapes of convolutions: parameters, borders, and which taps meet the image.

Taps that meet only padding are left out. With 3×3 taps 24 apart over 16×16 pixels only the middle tap meets any pixel.
Where a tap meets part of the image, the output is split into spans whose taps all do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from engine.compiler.kernels.numbers import FLOAT
from engine.compiler.kernels.products.arithmetic import Words
from engine.compiler.kernels.windows import WindowAxis
from engine.compiler.lowering.layout import NO_BORDER, Border
from engine.compiler.lowering.steps import NotLoweredError
from engine.ir.dims import hint, is_symbolic
from engine.layers.convolution import conv

# Share of its products that splitting an axis must save, and pixels that take as long as fewer do.
WORTH = 0.15
MIN_PIXELS = 4
# Most spans of an axis: each pair of them is a kernel of its own.
MAX_SPANS = 8
# Most taps for which the taps that meet the image are determined exactly.
MAX_TAPS = 4096
# Limits of an image with its border: growth factor, and pixels that are allowed in addition.
MAX_GROWTH = 16
FEW_PIXELS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvAxis:
    """Spatial axis of a convolution.

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

    def valid_taps(self, output: int) -> range:
        """Return the taps of an output pixel that meet the input."""
        origin = output * self.stride - self.before
        first = max(0, -(origin // self.dilation))
        return range(first, max(first, min(self.kernel, (self.size - 1 - origin) // self.dilation + 1)))

    def runs(self) -> Iterator[tuple[int, range]]:
        """Yield runs of output pixels that meet the same taps: their number and the taps; at most two for every tap."""
        output = 0
        while output < self.count:
            taps, following = self.valid_taps(output), self._next_change(output)
            yield following - output, taps
            output = following

    def _next_change(self, output: int) -> int:
        """Return the next output pixel that may meet other taps."""
        origin = output * self.stride - self.before
        skipped = max(0, -(origin // self.dilation))
        stop = min(self.kernel, (self.size - 1 - origin) // self.dilation + 1)
        changes = [self._first_at((1 - min(skipped, self.kernel)) * self.dilation)] if skipped else []
        if stop > 0:
            changes.append(self._first_at(self.size - (stop - 1) * self.dilation))
        return max(output + 1, min(changes, default=self.count)) if changes else self.count

    def _first_at(self, origin: int) -> int:
        """Return the first output pixel whose first tap is at that input position or later, or the count."""
        return min(self.count, -(-(origin + self.before) // self.stride))


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Range of output pixels of an axis, and the taps they are summed over.

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
        """Return the span of ``count`` pixels from ``start`` that sum over ``taps``."""
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
        """Return the zeros before the input that are read."""
        return max(0, -self.origin)


@lru_cache(maxsize=4096)
def spans(axis: ConvAxis, *, can_split: bool) -> Sequence[Span]:
    """Return the spans of an axis, one of all pixels unless splitting pays; cached, because geometries recur."""
    if axis.kernel > MAX_TAPS or is_symbolic(axis.size):
        return (Span.of(axis, 0, axis.count, range(axis.kernel)),)
    runs = _merged(axis.runs())
    read_taps = [taps for _, taps in runs if taps]
    if not read_taps:  # zeros everywhere; a tap must read them
        return (Span.of(axis, 0, axis.count, range(axis.kernel)),)
    whole = range(min(each.start for each in read_taps), max(each.stop for each in read_taps))
    if can_split and axis.dilation > 1 and len(read_taps) == len(runs) and _is_worth(runs, whole):
        return tuple(_split(axis, runs))
    return (Span.of(axis, 0, axis.count, whole),)


def _merged(runs: Iterator[tuple[int, range]]) -> list[tuple[int, range]]:
    """Merge neighbouring runs of equal taps."""
    result: list[tuple[int, range]] = []
    for count, taps in runs:
        if result and result[-1][1] == taps:
            result[-1] = result[-1][0] + count, taps
        else:
            result.append((count, taps))
    return result


def _is_worth(runs: Sequence[tuple[int, range]], whole: range) -> bool:
    if len(runs) > MAX_SPANS:
        return False
    products, pixels = sum(max(count, MIN_PIXELS) * len(taps) for count, taps in runs), sum(count for count, _ in runs)
    return products <= (1 - WORTH) * pixels * len(whole)


def _split(axis: ConvAxis, runs: Sequence[tuple[int, range]]) -> list[Span]:
    result, start = [], 0
    for count, taps in runs:
        result.append(Span.of(axis, start, count, taps))
        start += count
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvParameters:
    """Parameters of a convolution, with a height of one where there is none.

    Args:
        depth: the windows along the planes of a volume; None where every plane is an image by itself.
        words: numbers of the image and the weights, a row of ``ARITHMETIC``.
        numbers: dtype of the image in memory, if its words are floats; see ``numbers``.
    """

    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    border: Border = NO_BORDER
    groups: int = 1
    depth: WindowAxis | None = None
    words: Words = "float"
    numbers: str = FLOAT

    @property
    def planes(self) -> int:
        """Return the planes of taps."""
        return 1 if self.depth is None else self.depth.kernel


@lru_cache(maxsize=4096)  # every size has the same key
def parameters_of(layer: conv.Conv, kernel: tuple[int, ...], pairs: tuple[tuple[int, int], ...]) -> ConvParameters:
    """Return the parameters of a layer of these kernel sizes.

    Args:
        pairs: zeros before and after each axis.
    """
    windows = layer.windows_of(kernel)
    (top, bottom), (left, right) = [(0, 0), *pairs][-2:]
    return ConvParameters(
        kernel=_pair([window.kernel for window in windows]),
        stride=_pair([window.stride for window in windows]),
        dilation=_pair([window.dilation for window in windows]),
        border=(top, left, bottom, right),
        groups=layer.groups,
    )


def depth_of(
    layer: conv.Conv,
    kernel: tuple[int, ...],
    pairs: Sequence[tuple[int, int]],
    sizes: tuple[int, ...],
    counts: tuple[int, ...],
) -> WindowAxis | None:
    """Return the windows of a volume's convolution along its planes; None where every plane is by itself.

    Args:
        pairs: zeros before and after each axis.
        sizes, counts: of the input and of the output.
    """
    if len(kernel) < 3:
        return None
    window, before = layer.windows_of(kernel)[0], pairs[0][0]
    if (window.kernel, window.stride, before, counts[0]) == (1, 1, 0, sizes[0]):
        return None
    return WindowAxis(
        size=sizes[0],
        count=counts[0],
        kernel=window.kernel,
        stride=window.stride,
        dilation=window.dilation,
        padding=before,
    )


def plain_conv(
    layer: conv.Conv | conv.StridedSameConv, sizes: tuple[int, ...], kernel: tuple[int, ...]
) -> tuple[conv.Conv, tuple[tuple[int, int], ...]]:
    """Return a layer as a plain convolution, and its padding before and after each axis of such an image."""
    if isinstance(layer, conv.Conv):
        return layer, tuple(layer.padding_of(kernel))
    return layer.conv, tuple(layer.pairs_of(sizes, kernel))


def _pair(numbers: list[int]) -> tuple[int, int]:
    first, second = [1, *numbers][-2:]
    return first, second


def spans_of(
    parameters: ConvParameters, sizes: tuple[int, ...], counts: tuple[int, ...]
) -> tuple[Sequence[Span], Sequence[Span]]:
    """Return the spans of the output's rows and columns.

    Args:
        sizes, counts: pixels of the input and of the output.
    """
    rows, columns = (
        spans(
            ConvAxis(
                size=_pair(list(sizes))[k],
                count=_pair(list(counts))[k],
                kernel=parameters.kernel[k],
                stride=parameters.stride[k],
                dilation=parameters.dilation[k],
                before=parameters.border[k],
                after=parameters.border[2 + k],
            ),
            can_split=parameters.groups == 1,
        )
        for k in (0, 1)
    )
    return rows, columns


def border_of(rows: Sequence[Span], columns: Sequence[Span], sizes: tuple[int, ...]) -> Border:
    """Return the zeros around an image of ``sizes`` that are read.

    Raises:
        NotLoweredError: they are too many to be laid around it.
    """
    top, left = (max(span.before for span in each) for each in (rows, columns))
    bottom, right = (max(span.after for span in each) for each in (rows, columns))
    return checked_border((top, left, bottom, right), sizes)


def border_for(parameters: ConvParameters, sizes: tuple[int, ...], counts: tuple[int, ...]) -> Border:
    """Return the zeros that a convolution needs around its image, for neighbours of symbolic sizes too.

    Args:
        sizes, counts: pixels of the input and of the output.

    Raises:
        NotLoweredError: they are too many to be laid around it.
    """
    # With another size, the stride may reach pixels that this size leaves unread.
    if is_symbolic(sizes) and max(parameters.dilation) == 1:
        return checked_border(parameters.border, sizes)
    return border_of(*spans_of(parameters, sizes, counts), sizes)


def checked_border(border: Border, sizes: tuple[int, ...]) -> Border:
    """Check that a border is not too large, and return it.

    Raises:
        NotLoweredError: an image of ``sizes`` would grow too much with it.
    """
    (height, width), (top, left, bottom, right) = _pair(list(sizes)), border
    if hint((height + top + bottom) * (width + left + right)) > MAX_GROWTH * hint(height * width) + FEW_PIXELS:
        raise NotLoweredError("there is no kernel for this padding")
    return border
