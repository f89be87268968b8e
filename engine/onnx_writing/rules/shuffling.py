"""Moves between channels and space."""

from __future__ import annotations

from collections.abc import Sequence

from engine.layers.vision import shuffle
from engine.onnx_writing.registry import writes
from engine.onnx_writing.value import Value
from engine.onnx_writing.writer import Writer


@writes(shuffle.PixelShuffle)
def pixel_shuffle(to: Writer, layer: shuffle.PixelShuffle, input: Value) -> Value:
    r = layer.upscale_factor
    if input.rank == 4:
        return to.op("DepthToSpace", input, blocksize=r, mode="DCR" if layer.block_first else "CRD")
    lead, (c, h, w) = _sizes(to, input)
    (channels,) = to.known((input.shape[-3],), "the number of channels")
    planes = [r, r, channels // (r * r)] if layer.block_first else [channels // (r * r), r, r]
    x = to.reshape(input, [*lead, *planes, h, w])
    n = len(lead)
    order = [2, 3, 0, 4, 1] if layer.block_first else [0, 3, 1, 4, 2]
    moved = to.op("Transpose", x, perm=[*range(n), *(n + each for each in order)])
    tail = [-1 if size is None else size * r for size in input.shape[-2:]]
    return to.reshape(moved, [*lead, channels // (r * r), *tail])


@writes(shuffle.PixelUnshuffle)
def pixel_unshuffle(to: Writer, layer: shuffle.PixelUnshuffle, input: Value) -> Value:
    r = layer.downscale_factor
    if input.rank == 4 and layer.block_first:
        return to.op("SpaceToDepth", input, blocksize=r)
    lead, _ = _sizes(to, input)
    c, h, w = to.known(input.shape[-3:], "channels, height and width")
    x = to.reshape(input, [*lead, c, h // r, r, w // r, r])
    n = len(lead)
    order = [2, 4, 0, 1, 3] if layer.block_first else [0, 2, 4, 1, 3]
    moved = to.op("Transpose", x, perm=[*range(n), *(n + each for each in order)])
    return to.reshape(moved, [*lead, c * r * r, h // r, w // r])


def _sizes(to: Writer, input: Value) -> tuple[list[object], Sequence[object]]:
    sizes = [to.size(input, axis) for axis in range(input.rank)]
    return sizes[:-3], sizes[-3:]


@writes(shuffle.ChannelShuffle)
def channel_shuffle(to: Writer, layer: shuffle.ChannelShuffle, input: Value) -> Value:
    n, _, *rest = (to.size(input, axis) for axis in range(input.rank))
    (channels,) = to.known(input.shape[1:2], "the number of channels")
    x = to.reshape(input, [n, layer.groups, channels // layer.groups, *rest])
    moved = to.op("Transpose", x, perm=[0, 2, 1, *range(3, input.rank + 1)])
    return to.op("Reshape", moved, to.sizes(input))
