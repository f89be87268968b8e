"""Moves between channels and space, and among channels; no value changes."""

from __future__ import annotations

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.definition.registry import register
from engine.layers.operands.spatial import Operand, tensor
from engine.layers.shape.shape import Rearrangement
from engine.tensor import Array, Dim, TensorSpec, format_shape, product


@register("F.pixel_shuffle")
class PixelShuffle(Rearrangement):
    """Every r*r channels become a block of r x r pixels: y[c, h*r + i, w*r + j] = x[c*r*r + i*r + j, h, w].

    Shapes:
        input (*, C*r*r, H, W)  ->  (*, C, H*r, W*r), r = upscale_factor
    Parameters:
        block_first: the channels are numbered (i*r + j)*C + c instead (ONNX's DCR).
    Dtypes:
        any.
    Raises:
        ShapeError: when the channels cannot be divided.
    Source:
        torch.nn.PixelShuffle.
    """

    upscale_factor: int
    block_first: bool = False

    def __post_init__(self) -> None:
        _check_positive("upscale_factor", self.upscale_factor)

    def infer(self, input: Operand) -> TensorSpec:
        spec, r = _image(input), self.upscale_factor
        *lead, c, h, w = spec.shape
        channels = divided(c, r * r, "channels")
        return TensorSpec((*lead, channels, product((h, r)), product((w, r))), spec.dtype)

    def forward(self, input: Array) -> Array:
        *lead, c, h, w = input.shape
        r = self.upscale_factor
        if self.block_first:
            pixels: Array = np.einsum("...ijchw->...chiwj", input.reshape(*lead, r, r, c // (r * r), h, w))
        else:
            pixels = np.einsum("...ijhw->...hiwj", input.reshape(*lead, c // (r * r), r, r, h, w))
        return pixels.reshape(*lead, c // (r * r), h * r, w * r)


@register("F.pixel_unshuffle")
class PixelUnshuffle(Rearrangement):
    """The inverse of PixelShuffle: every block of r x r pixels becomes r*r channels.

    Shapes:
        input (*, C, H*r, W*r)  ->  (*, C*r*r, H, W), r = downscale_factor
    Parameters:
        block_first: as for PixelShuffle.
    Dtypes:
        any.
    Raises:
        ShapeError: when height or width cannot be divided.
    Source:
        torch.nn.PixelUnshuffle.
    """

    downscale_factor: int
    block_first: bool = False

    def __post_init__(self) -> None:
        _check_positive("downscale_factor", self.downscale_factor)

    def infer(self, input: Operand) -> TensorSpec:
        spec, r = _image(input), self.downscale_factor
        *lead, c, h, w = spec.shape
        return TensorSpec((*lead, product((c, r * r)), divided(h, r, "height"), divided(w, r, "width")), spec.dtype)

    def forward(self, input: Array) -> Array:
        *lead, c, h, w = input.shape
        r = self.downscale_factor
        blocks = input.reshape(*lead, c, h // r, r, w // r, r)
        channels: Array = np.einsum("...chiwj->...ijchw" if self.block_first else "...hiwj->...ijhw", blocks)
        return channels.reshape(*lead, c * r * r, h // r, w // r)


@register("F.channel_shuffle", positional=("input", "groups"))
class ChannelShuffle(Rearrangement):
    """Channels interleaved by groups: y[:, k*groups + g] = x[:, g*C/groups + k].

    Shapes:
        input (N, C, *S)  ->  the same
    Dtypes:
        any.
    Raises:
        ShapeError: when the channels cannot be divided into the groups.
    Source:
        torch.nn.ChannelShuffle.
    """

    groups: int

    def __post_init__(self) -> None:
        _check_positive("groups", self.groups)

    def infer(self, input: Operand) -> TensorSpec:
        spec = _image(input)
        divided(spec.shape[1], self.groups, "channels")
        return spec

    def forward(self, input: Array) -> Array:
        n, c, *sizes = input.shape
        return input.reshape(n, self.groups, c // self.groups, *sizes).swapaxes(1, 2).reshape(input.shape)


def _check_positive(name: str, value: int) -> None:
    if value < 1:
        raise ParameterError(f"{name} must be positive", found=value)


def _image(input: Operand) -> TensorSpec:
    spec = tensor(input)
    if spec.rank < 3:
        raise ShapeError("input has too few dimensions", found=format_shape(spec.shape), expected="at least 3")
    return spec


def divided(size: Dim, divisor: int, name: str) -> Dim:
    """Return a size divided by a number.

    Raises:
        ShapeError: there is a remainder.
    """
    if size is None:
        return None
    if size % divisor:
        raise ShapeError(f"{name} cannot be divided", found=size, expected=f"a multiple of {divisor}")
    return size // divisor
