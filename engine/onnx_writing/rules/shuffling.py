"""Moves between channels and space."""

from __future__ import annotations

from engine.layers.vision import shuffle
from engine.onnx_writing.registry import writes
from engine.onnx_writing.value import Value
from engine.onnx_writing.writer import Writer


@writes(shuffle.PixelShuffle)
def pixel_shuffle(to: Writer, layer: shuffle.PixelShuffle, input: Value) -> Value:
    sizes, result = input.all_sizes(), to.inferred(layer, input).shape[-3:]
    images = input if input.rank == 4 else to.reshape(input, [-1, *sizes[-3:]])
    made = to.op("DepthToSpace", images, blocksize=layer.upscale_factor, mode="DCR" if layer.block_first else "CRD")
    tail = [-1 if size is None else size for size in result]
    return made if input.rank == 4 else to.reshape(made, [*sizes[:-3], *tail])


@writes(shuffle.PixelUnshuffle)
def pixel_unshuffle(to: Writer, layer: shuffle.PixelUnshuffle, input: Value) -> Value:
    r, lead = layer.downscale_factor, input.all_sizes()[:-3]
    if input.rank == 4 and layer.block_first:
        return to.op("SpaceToDepth", input, blocksize=r)
    c, h, w = to.known(input.shape[-3:], "channels, height and width")
    x = to.reshape(input, [*lead, c, h // r, r, w // r, r])
    n = len(lead)
    order = [2, 4, 0, 1, 3] if layer.block_first else [0, 2, 4, 1, 3]
    moved = to.op("Transpose", x, perm=[*range(n), *(n + each for each in order)])
    return to.reshape(moved, [*lead, c * r * r, h // r, w // r])


@writes(shuffle.ChannelShuffle)
def channel_shuffle(to: Writer, layer: shuffle.ChannelShuffle, input: Value) -> Value:
    n, _, *rest = input.all_sizes()
    (channels,) = to.known(input.shape[1:2], "the number of channels")
    x = to.reshape(input, [n, layer.groups, channels // layer.groups, *rest])
    moved = to.op("Transpose", x, perm=[0, 2, 1, *range(3, input.rank + 1)])
    return to.op("Reshape", moved, to.sizes(input))
