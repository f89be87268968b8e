"""Deformable convolutions: samples of every tap as channels of an image, and a 1x1 convolution of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from engine.compiler.kernels.images.deformable import DeformableSampling, Segment
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.rules.convolution.conv import pointwise_conv
from engine.compiler.lowering.rules.indexing.sampling import with_contiguous_channels
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import Lowered, NotLoweredError
from engine.compiler.storage import View, channels_last
from engine.layers.convolution.deform import DeformConv2d
from engine.layers.operands.spatial import spread
from engine.tensor import Array

# Most runs of channels that share offsets and weights, each with code of its own.
_MAX_SEGMENTS = 32


@kernels_for(DeformConv2d, image=True)
def lower_deform(context: Context) -> Lowered:
    """Lower a convolution of samples at run-time positions."""
    conv = context.layer(DeformConv2d)
    x, weight, offset = context.tensor(0), context.weight(1), context.tensor(2)
    bias = context.optional_weight(4)
    mask = None if context.argument(3) is None else context.tensor(3)
    n, count, *sizes = x.shape
    kernel, places = weight.shape[2:], context.result_spec.sizes[2:]
    taps, groups = kernel[0] * kernel[1], conv.groups
    offset_groups = offset.shape[1] // (2 * taps)
    if not offset_groups or count % offset_groups or count % groups:
        raise NotLoweredError("the number of its offsets does not match")
    segments = _segments(count, groups, offset_groups, taps)
    image, copies = with_contiguous_channels(context, x)
    seen = channels_last((n, taps * count, *places))
    stride, dilation = (spread(each, 2, name) for each, name in ((conv.stride, "stride"), (conv.dilation, "dilation")))
    padding = spread(conv.padding, 2, "padding", 0)
    sampling = DeformableSampling(
        batch=n,
        sizes=(sizes[0], sizes[1]),
        source=image.strides,
        kernel=(kernel[0], kernel[1]),
        stride=(stride[0], stride[1]),
        padding=(padding[0], padding[1]),
        dilation=(dilation[0], dilation[1]),
        output_size=(places[0], places[1]),
        offsets=offset.strides,
        masks=None if mask is None else mask.strides,
        segments=segments,
        target=(seen.strides[0], seen.strides[2], seen.strides[3]),
        host=context.host,
    )
    step = context.step(sampling, image, offset, _or(mask, offset), seen)
    after = pointwise_conv(context, seen, _by_taps(weight), bias, groups)
    return replace(after, steps=[*copies, step, *after.steps])


def _or(mask: View | None, offset: View) -> View:
    return offset if mask is None else mask


def _segments(count: int, groups: int, offset_groups: int, taps: int) -> tuple[Segment, ...]:
    """Return runs of channels that lie in one group of weights and one of offsets."""
    of_weights, of_offsets = count // groups, count // offset_groups
    ends = sorted({*range(0, count + 1, of_weights), *range(0, count + 1, of_offsets)})
    if len(ends) - 1 > _MAX_SEGMENTS:
        raise NotLoweredError("there is no kernel for this many groups")
    return tuple(
        Segment(
            group=first // of_offsets,
            first=first,
            count=last - first,
            target=first // of_weights * taps * of_weights + first % of_weights,
            step=of_weights,
        )
        for first, last in zip(ends, ends[1:], strict=False)
    )


def _by_taps(weight: Array) -> Array:
    """Return (O, I, KH, KW) as (O, KH * KW * I, 1, 1): tap after tap, each with all channels of its group."""
    return np.ascontiguousarray(np.moveaxis(weight, 1, -1).reshape(len(weight), -1, 1, 1))
