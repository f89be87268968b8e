"""A convolution as its parameters give it, and the spans its output falls into."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from engine.compiler.kernels.axis import WindowAxis
from engine.compiler.lowering.declining import NotLoweredError
from engine.compiler.lowering.layout.wishes import NO_BORDER, Border
from engine.compiler.lowering.rules.convolution.taps import ConvAxis, Span, spans
from engine.ir.dims import hint
from engine.layers.convolution import conv

# How many times as many pixels an image within its border may have, and so many more.
MOST_GROWTH = 16
FEW_PIXELS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvParameters:
    """A convolution as its parameters give it, with a height of one where there is none.

    Args:
        depth: the windows along the planes of a volume; None where every plane is an image by itself.
        integers: how many a value is; 0 for a float.
        has_shift: whether the first operand of the epilogue is 32-bit integers, to be added to the sums.
    """

    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    border: Border = NO_BORDER
    groups: int = 1
    depth: WindowAxis | None = None
    integers: int = 0
    has_shift: bool = False

    @property
    def planes(self) -> int:
        """Planes of taps."""
        return 1 if self.depth is None else self.depth.kernel


@lru_cache(maxsize=4096)  # every size asks for the same
def parameters_of(layer: conv.Conv, kernel: tuple[int, ...], pairs: tuple[tuple[int, int], ...]) -> ConvParameters:
    """The parameters of a layer of these kernel sizes.

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
    """How the windows of a convolution of volumes lie along their planes; None where every plane is by itself.

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


def settled_conv(
    layer: conv.Conv | conv.StridedSameConv, sizes: tuple[int, ...], kernel: tuple[int, ...]
) -> tuple[conv.Conv, tuple[tuple[int, int], ...]]:
    """The convolution a layer is, and what it has before and after each axis of an image of these sizes."""
    if isinstance(layer, conv.Conv):
        return layer, tuple(layer.padding_of(kernel))
    return layer.conv, tuple(layer.pairs_of(sizes, kernel))


def _pair(numbers: list[int]) -> tuple[int, int]:
    first, second = [1, *numbers][-2:]
    return first, second


def spans_of(
    parameters: ConvParameters, sizes: tuple[int, ...], counts: tuple[int, ...]
) -> tuple[Sequence[Span], Sequence[Span]]:
    """The spans that the rows and columns of the output fall into.

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
    """The zeros around an image of ``sizes`` that are read.

    Raises:
        NotLoweredError: they are too many to be laid around it.
    """
    top, left = (max(span.before for span in each) for each in (rows, columns))
    bottom, right = (max(span.after for span in each) for each in (rows, columns))
    return bearable((top, left, bottom, right), sizes)


def bearable(border: Border, sizes: tuple[int, ...]) -> Border:
    """The border itself.

    Raises:
        NotLoweredError: an image of ``sizes`` within it would outgrow the image by far.
    """
    (height, width), (top, left, bottom, right) = _pair(list(sizes)), border
    if hint((height + top + bottom) * (width + left + right)) > MOST_GROWTH * hint(height * width) + FEW_PIXELS:
        raise NotLoweredError("there is no kernel for so much padding")
    return border
