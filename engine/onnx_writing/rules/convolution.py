"""Convolutions, padding, and the rearrangement of windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from engine.layers.convolution import conv, conv_transpose, deform, fold, pad
from engine.layers.operands.spatial import spread
from engine.onnx_writing.registry import writes
from engine.onnx_writing.value import Operand, Value, holds_value
from engine.onnx_writing.writer import INT64, Writer
from engine.promotion import promote_types
from engine.tensor import Shape

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
    shape = None if result.sizes is None else result.sizes[1:]
    return to.op("Squeeze", result, to.constant([0], INT64), shape=shape)


def _common(to: Writer, *operands: Value | None) -> list[Value | None]:
    """Return operands in the widest of their dtypes."""
    given = [each for each in operands if each is not None]
    dtype = given[0].dtype
    for each in given[1:]:
        dtype = promote_types(dtype, each.dtype)
    return [None if each is None else to.cast(each, dtype) for each in operands]


def _vector_bias(to: Writer, bias: Value | None) -> Value | None:
    return bias if bias is None or bias.rank == 1 else to.reshape(bias, (-1,))


@writes(conv.Conv)
def convolution(to: Writer, layer: conv.Conv, input: Value, weight: Value, bias: Value | None = None) -> Value:
    x, bank, shift = _common(to, input, weight, bias)
    assert x is not None and bank is not None  # only the bias may be absent
    rank, attributes = layer.spatial_rank, _attributes(layer, bank)
    if isinstance(layer.padding, str) and None in bank.shape[2:]:
        to.refuse("padding by a name needs a known kernel", "export the model with numbers as padding")
    kernel = to.known(bank.shape[2:], "the size of the kernel")
    pairs = layer.padding_of(kernel)
    if layer.padding_mode != "zeros":
        x = padded(to, x, pairs, conv.PADDING_MODES[layer.padding_mode])
        pairs = [(0, 0)] * rank
    pads = [*(before for before, _ in pairs), *(after for _, after in pairs)]

    def write(image: Value) -> Value:
        return to.op("Conv", image, bank, _vector_bias(to, shift), pads=pads, **attributes)

    return batched(to, x, rank, write)


def _attributes(layer: Any, bank: Value) -> dict[str, Any]:
    rank = layer.spatial_rank
    return {
        "strides": list(spread(layer.stride, rank, "stride")),
        "dilations": list(spread(layer.dilation, rank, "dilation")),
        "group": layer.groups,
        "kernel_shape": None if None in bank.shape[2:] else [int(size or 0) for size in bank.shape[2:]],
    }


@writes(conv.StridedSameConv)
def strided_same(
    to: Writer, layer: conv.StridedSameConv, input: Value, weight: Value, bias: Value | None = None
) -> Value:
    x, bank, shift = _common(to, input, weight, bias)
    assert x is not None and bank is not None  # only the bias may be absent
    auto_pad = "SAME_UPPER" if layer.is_upper else "SAME_LOWER"

    def write(image: Value) -> Value:
        return to.op("Conv", image, bank, shift, auto_pad=auto_pad, **_attributes(layer.conv, bank))

    return batched(to, x, layer.conv.spatial_rank, write)


@writes(conv_transpose.ConvTranspose)
def transposed(
    to: Writer, layer: conv_transpose.ConvTranspose, input: Value, weight: Value, bias: Value | None = None
) -> Value:
    x, bank, shift = _common(to, input, weight, bias)
    assert x is not None and bank is not None  # only the bias may be absent
    rank = layer.spatial_rank
    padding = list(spread(layer.padding, rank, "padding", 0))
    extra = list(spread(layer.output_padding, rank, "output_padding", 0))

    def write(image: Value) -> Value:
        return to.op(
            "ConvTranspose", image, bank, _vector_bias(to, shift),
            pads=padding * 2, output_padding=extra if any(extra) else None, **_attributes(layer, bank),
        )  # fmt: skip

    return batched(to, x, rank, write)


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
    x, bank, moved, weights, shift = _common(to, input, weight, offset, mask, bias)
    assert bank is not None and moved is not None  # only the mask and the bias may be absent
    taps = to.known(bank.shape[2:], "the size of the kernel")
    (channels,) = to.known(moved.shape[1:2], "the number of offset channels")
    padding = list(spread(layer.padding, 2, "padding", 0))
    groups = channels // (2 * taps[0] * taps[1])
    return to.op(
        "DeformConv", x, bank, moved, shift, weights,
        pads=padding * 2, offset_group=groups, **_attributes(layer, bank),
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
    known = [each for pair in pairs for each in pair if not isinstance(each, Value)]
    if len(known) == 2 * len(pairs) and min(known) < 0 and mode != "constant":
        x = _cropped(to, x, pairs)
        pairs = [(max(before, 0), max(after, 0)) for before, after in pairs]
    amounts = to.vector([*lead, *(before for before, _ in pairs), *lead, *(after for _, after in pairs)])
    filler = None if mode != "constant" or value is None else to.reshape(to.tensor(value, x.dtype), ())
    if mode == "circular":
        return _wrapped(to, x, pairs)
    sizes = [(None, None) if holds_value(pair) else pair for pair in pairs]
    return to.op("Pad", x, amounts, filler, mode=_MODES[mode], shape=pad.padded_shape(x.shape, sizes, mode))


def _cropped(to: Writer, x: Value, pairs: Sequence[tuple[int, int]]) -> Value:
    for axis, (before, after) in enumerate(pairs, start=x.rank - len(pairs)):
        if before < 0 or after < 0:
            x = to.slice(x, axis, max(-before, 0), 2**63 - 1 if after >= 0 else after)
    return x


def _wrapped(to: Writer, x: Value, pairs: Sequence[tuple[Any, Any]]) -> Value:
    """Write circular padding as a concatenation: runtimes lack kernels for mode "wrap"."""
    for axis, (before, after) in enumerate(pairs, start=x.rank - len(pairs)):
        parts = [x]
        if isinstance(before, Value) or isinstance(after, Value):
            to.refuse("circular padding by an amount that depends on a run")
        if before > 0:
            parts.insert(0, to.slice(x, axis, -before, 2**63 - 1))
        if after > 0:
            parts.append(to.slice(x, axis, 0, after))
        if len(parts) > 1:
            x = to.op("Concat", *parts, axis=axis, shape=_lengthened(x.shape, axis, before + after))
    return x


def _lengthened(shape: Shape, axis: int, more: int) -> Shape:
    return tuple(size if place != axis or size is None else size + more for place, size in enumerate(shape))


# Windows


@writes(fold.Unfold)
def unfold(to: Writer, layer: fold.Unfold, input: Value) -> Value:
    """Write the columns of an image as a gathering of its padded rows and columns."""
    height, width = to.known(input.shape[-2:], "height and width")
    windows = layer.windows
    padding = [(each.before, each.after) for each in windows]
    x = padded(to, input, padding, "constant")
    places = []
    for window, size in zip(windows, (height, width), strict=True):
        starts = np.arange(window.count(size) or 0) * window.stride
        places.append(np.arange(window.kernel)[:, None] * window.dilation + starts)
    axis = input.rank - 2
    (ky, oh), (kx, ow) = (each.shape for each in places)
    x = to.op("Gather", x, to.constant(places[0].reshape(-1), INT64), axis=axis)
    x = to.op("Gather", x, to.constant(places[1].reshape(-1), INT64), axis=axis + 1)
    lead = [to.size(input, k) for k in range(input.rank - 3)]
    (channels,) = to.known(input.shape[-3:-2], "the number of channels")
    x = to.reshape(x, [*lead, channels, ky, oh, kx, ow])
    first = len(lead)
    order = [*range(first), first, first + 1, first + 3, first + 2, first + 4]
    x = to.op("Transpose", x, perm=order)
    return to.reshape(x, [*lead, channels * ky * kx, oh * ow])


@writes(fold.Fold)
def fold_(to: Writer, layer: fold.Fold, input: Value) -> Value:
    sizes = to.known(layer.output_size, "the size of the result")
    sizes = sizes * len(layer.kernel_size) if len(sizes) == 1 else sizes
    rank = len(sizes)
    kernel, dilation, strides = (
        list(spread(getattr(layer, name), rank, name)) for name in ("kernel_size", "dilation", "stride")
    )
    padding = list(spread(layer.padding, rank, "padding", 0))
    x = input if input.rank == 3 else to.unsqueeze(input, 0)
    result = to.op(
        "Col2Im", x, to.constant(list(sizes), INT64), to.constant(kernel, INT64),
        dilations=dilation, pads=padding * 2, strides=strides,
    )  # fmt: skip
    return result if input.rank == 3 else _first(to, result)
