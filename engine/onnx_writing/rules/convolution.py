"""Convolutions, padding, and the rearrangement of windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from engine.layers.convolution import conv, conv_transpose, deform, fold, pad
from engine.layers.operands.axes import replaced
from engine.layers.operands.spatial import spread
from engine.onnx_writing.registry import writes
from engine.onnx_writing.value import Operand, Value, holds_value
from engine.onnx_writing.writer import END, Writer

Results = TypeVar("Results", Value, tuple[Value, ...])


def batched(to: Writer, input: Value, rank: int, write: Callable[[Value], Results]) -> Results:
    """Write an operator of images (N, C, *S) for an input that may lack the batch axis."""
    if input.rank != rank + 1:
        return write(input)
    result = write(to.unsqueeze(input, 0))
    if isinstance(result, tuple):
        return tuple(_first(to, each) for each in result)
    return _first(to, result)


def _first(to: Writer, result: Value) -> Value:
    return to.op("Squeeze", result, [0], shape=None if result.sizes is None else result.sizes[1:])


def _vector(to: Writer, bias: Value | None) -> Value | None:
    return None if bias is None else to.reshape(bias, (-1,)) if bias.rank != 1 else bias


def _attributes(layer: Any, bank: Value) -> dict[str, Any]:
    rank = layer.spatial_rank
    return {
        "strides": list(spread(layer.stride, rank, "stride")),
        "dilations": list(spread(layer.dilation, rank, "dilation")),
        "group": layer.groups,
        "kernel_shape": None if None in bank.shape[2:] else [int(size or 0) for size in bank.shape[2:]],
    }


@writes(conv.Conv)
def convolution(to: Writer, layer: conv.Conv, input: Value, weight: Value, bias: Value | None = None) -> Value:
    x, bank, shift = to.widest(input, weight, bias)
    rank, attributes = layer.spatial_rank, _attributes(layer, bank)
    if isinstance(layer.padding, str) and None in bank.shape[2:]:
        to.refuse("padding by a name needs a known kernel", "export the model with numbers as padding")
    pairs = layer.padding_of(to.known(bank.shape[2:], "the size of the kernel"))
    if layer.padding_mode != "zeros":
        x = padded(to, x, pairs, conv.PADDING_MODES[layer.padding_mode])
        pairs = [(0, 0)] * rank
    pads = [*(before for before, _ in pairs), *(after for _, after in pairs)]
    return batched(to, x, rank, lambda image: to.op("Conv", image, bank, _vector(to, shift), pads=pads, **attributes))


@writes(conv.StridedSameConv)
def strided_same(
    to: Writer, layer: conv.StridedSameConv, input: Value, weight: Value, bias: Value | None = None
) -> Value:
    x, bank, shift = to.widest(input, weight, bias)
    attributes = {"auto_pad": "SAME_UPPER" if layer.is_upper else "SAME_LOWER", **_attributes(layer.conv, bank)}
    return batched(to, x, layer.conv.spatial_rank, lambda image: to.op("Conv", image, bank, shift, **attributes))


@writes(conv_transpose.ConvTranspose)
def transposed(
    to: Writer, layer: conv_transpose.ConvTranspose, input: Value, weight: Value, bias: Value | None = None
) -> Value:
    x, bank, shift = to.widest(input, weight, bias)
    rank = layer.spatial_rank
    extra = list(spread(layer.output_padding, rank, "output_padding", 0))
    attributes = {
        "pads": list(spread(layer.padding, rank, "padding", 0)) * 2,
        "output_padding": extra if any(extra) else None,
        **_attributes(layer, bank),
    }
    return batched(to, x, rank, lambda image: to.op("ConvTranspose", image, bank, _vector(to, shift), **attributes))


@writes(deform.DeformConv2d)
def deformable(
    to: Writer,
    layer: deform.DeformConv2d,
    input: Value,
    weight: Value,
    offset: Value,
    mask: Value | None = None,
    bias: Value | None = None,
) -> Value:
    x, bank, moved, weights, shift = to.widest(input, weight, offset, mask, bias)
    taps = to.known(bank.shape[2:], "the size of the kernel")
    (channels,) = to.known(moved.shape[1:2], "the number of offset channels")
    return to.op(
        "DeformConv", x, bank, moved, shift, weights,
        pads=list(spread(layer.padding, 2, "padding", 0)) * 2, offset_group=channels // (2 * taps[0] * taps[1]),
        **_attributes(layer, bank),
    )  # fmt: skip


# Padding


@writes(pad.Pad, dynamic=("pad",))
def padding(to: Writer, layer: pad.Pad, input: Value, value: Operand = None) -> Value:
    amounts = layer.pad
    if isinstance(amounts, Value):
        to.refuse("the number of padded axes depends on a run")
    pairs = list(zip(amounts[::2], amounts[1::2], strict=True))[::-1]
    return padded(to, input, pairs, layer.mode, value)


_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def padded(to: Writer, x: Value, pairs: Sequence[tuple[Any, Any]], mode: str, value: Operand = None) -> Value:
    """Write the padding of the last axes."""
    if all(pair == (0, 0) for pair in pairs):
        return x
    lead = [0] * (x.rank - len(pairs))
    if mode != "constant" and not holds_value(pairs) and min(map(min, pairs)) < 0:
        x = _cropped(to, x, pairs)
        pairs = [(max(before, 0), max(after, 0)) for before, after in pairs]
    if mode == "circular":
        return _wrapped(to, x, pairs)
    amounts = to.vector([*lead, *(before for before, _ in pairs), *lead, *(after for _, after in pairs)])
    filler = None if mode != "constant" or value is None else to.reshape(to.tensor(value, x.dtype), ())
    sizes = [(None, None) if holds_value(pair) else pair for pair in pairs]
    return to.op("Pad", x, amounts, filler, mode=_MODES[mode], shape=pad.padded_shape(x.shape, sizes, mode))


def _cropped(to: Writer, x: Value, pairs: Sequence[tuple[int, int]]) -> Value:
    for axis, (before, after) in enumerate(pairs, start=x.rank - len(pairs)):
        if before < 0 or after < 0:
            x = to.slice(x, axis, max(-before, 0), END if after >= 0 else after)
    return x


def _wrapped(to: Writer, x: Value, pairs: Sequence[tuple[Any, Any]]) -> Value:
    """Write circular padding as a concatenation: runtimes lack kernels for mode "wrap"."""
    if holds_value(pairs):
        to.refuse("circular padding by an amount that depends on a run")
    for axis, (before, after) in enumerate(pairs, start=x.rank - len(pairs)):
        if before > 0 or after > 0:
            ends = [to.slice(x, axis, -before, END)] if before > 0 else []
            starts = [to.slice(x, axis, 0, after)] if after > 0 else []
            size = x.shape[axis]
            shape = replaced(x.shape, axis, None if size is None else size + before + after)
            x = to.op("Concat", *ends, x, *starts, axis=axis, shape=shape)
    return x


# Windows


@writes(fold.Unfold)
def unfold(to: Writer, layer: fold.Unfold, input: Value) -> Value:
    """Write the columns of an image as a gathering of its padded rows and columns."""
    sizes = to.known(input.shape[-2:], "height and width")
    x = padded(to, input, [(each.before, each.after) for each in layer.windows], "constant")
    taps = []
    for k, (window, size) in enumerate(zip(layer.windows, sizes, strict=True)):
        starts = np.arange(window.count(size) or 0) * window.stride
        places = np.arange(window.kernel)[:, None] * window.dilation + starts
        x = to.take(x, places, input.rank - 2 + 2 * k)  # (..., kernel, count)
        taps.append(places.shape)
    (ky, oh), (kx, ow) = taps
    first, lead = input.rank - 3, input.all_sizes()[:-3]
    (channels,) = to.known(input.shape[-3:-2], "the number of channels")
    x = to.op("Transpose", x, perm=[*range(first), first, first + 1, first + 3, first + 2, first + 4])
    return to.reshape(x, [*lead, channels * ky * kx, oh * ow])


@writes(fold.Fold)
def fold_(to: Writer, layer: fold.Fold, input: Value) -> Value:
    sizes = to.known(layer.output_size, "the size of the result")
    sizes = sizes * len(layer.kernel_size) if len(sizes) == 1 else sizes
    rank = len(sizes)
    kernel, dilations, strides = (
        list(spread(getattr(layer, name), rank, name)) for name in ("kernel_size", "dilation", "stride")
    )
    pads = list(spread(layer.padding, rank, "padding", 0)) * 2
    x = input if input.rank == 3 else to.unsqueeze(input, 0)
    result = to.op("Col2Im", x, list(sizes), kernel, dilations=dilations, pads=pads, strides=strides)
    return result if input.rank == 3 else _first(to, result)
