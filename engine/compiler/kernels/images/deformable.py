"""Sampling of a deformable convolution: each tap is a bilinear sample at its position plus a dynamic offset.

Pixels outside the image are not read; they count as zero.

Arguments: source, offsets, masks (the offsets again where there are none), target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.compiler.codegen.ir import Function, Index, Module, Value, as_value
from engine.compiler.kernels.channels import fitting_lanes
from engine.compiler.kernels.images.grid_sample import Channels, Tap, linear_taps, together
from engine.compiler.kernels.kernel import Lines, block_of, start


@dataclass(frozen=True, slots=True)
class Segment:
    """Contiguous channels of the samples that share offsets.

    Args:
        group: of offsets.
        first, count: channels of the image.
        target, step: offset of the first tap in the output, and distance between taps.
    """

    group: int
    first: int
    count: int
    target: int
    step: int


@dataclass(frozen=True, kw_only=True)
class DeformableSampling(Lines):
    """Sampling of images at the taps of every output pixel.

    Args:
        sizes: rows and columns of the images.
        source: strides of the images: batch, channels, rows, columns.
        kernel, stride, padding, dilation: of the convolution.
        output_size: rows and columns of the output.
        offsets, masks: their strides, along channels from tap to tap; masks may be None.
        target: strides of the output: batch, rows, columns.
    """

    kind = "deform"
    batch: int
    sizes: tuple[int, int]
    source: tuple[int, ...]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    output_size: tuple[int, int]
    offsets: tuple[int, ...]
    masks: tuple[int, ...] | None
    segments: tuple[Segment, ...]
    target: tuple[int, int, int]

    @property
    def taps(self) -> int:
        """Return the taps of every output pixel."""
        return self.kernel[0] * self.kernel[1]

    @property
    def channels(self) -> int:
        """Return the channels of every tap."""
        return sum(each.count for each in self.segments)

    @property
    def lines(self) -> int:
        """Return the rows of all images."""
        return self.batch * self.output_size[0]

    @property
    def line_bytes(self) -> int:
        return 16 * self.taps * self.channels * self.output_size[1]

    @property
    def flops(self) -> int:
        return 8 * self.lines * self.output_size[1] * self.taps * self.channels

    def emit(self, module: Module) -> None:
        f, (source, offsets, masks, target), chunk = start(module, self, 4)
        with f.loop(*block_of(f, chunk, self.block, self.lines)) as each:
            n, row = f.divmod(each.index, self.output_size[0])
            image = f.at(source, f.mul(n, self.source[0]))
            out = f.at(target, f.add(f.mul(n, self.target[0]), f.mul(row, self.target[1])))
            moves = f.at(offsets, f.add(f.mul(n, self.offsets[0]), f.mul(row, self.offsets[2])))
            shares = masks
            if self.masks is not None:
                shares = f.at(masks, f.add(f.mul(n, self.masks[0]), f.mul(row, self.masks[2])))
            with f.loop(0, self.output_size[1]) as column:
                pixel = f.at(out, f.mul(column.index, self.target[2]))
                at = f.at(moves, f.mul(column.index, self.offsets[3]))
                share = shares if self.masks is None else f.at(shares, f.mul(column.index, self.masks[3]))
                with f.loop(0, self.kernel[0]) as down, f.loop(0, self.kernel[1]) as along:
                    tap = f.add(f.mul(down.index, self.kernel[1]), along.index)
                    corner = (
                        self._corner(f, 0, row, down.index),
                        self._corner(f, 1, column.index, along.index),
                    )
                    self._see(f, image, at, share, pixel, tap, corner)
        f.finish()

    def _corner(self, f: Function, axis: int, position: Index, tap: Index) -> Value:
        """Emit the position of a tap before its offset is added."""
        first = f.sub(f.mul(position, self.stride[axis]), self.padding[axis])
        return f.convert("sitofp", as_value(f.add(first, f.mul(tap, self.dilation[axis]))), "float")

    def _see(
        self, f: Function, image: Value, moves: Value, shares: Value, pixel: Value, tap: Index, corner: Sequence[Value]
    ) -> None:
        taps: dict[int, list[Tap]] = {}
        scales: dict[int, Value | None] = {}
        for each in self.segments:
            if each.group not in taps:
                number = f.add(tap, each.group * self.taps)
                pair = f.at(moves, f.mul(number, 2 * self.offsets[1]))
                offsets = [f.load("float", f.at(pair, axis * self.offsets[1])) for axis in (0, 1)]
                moved = [f.fadd(origin, offset) for origin, offset in zip(corner, offsets, strict=True)]
                axes = [linear_taps(f, at, self.sizes[axis], self.source[2 + axis]) for axis, at in enumerate(moved)]
                taps[each.group] = together(f, axes)
                scales[each.group] = (
                    None if self.masks is None else f.load("float", f.at(shares, f.mul(number, self.masks[1])))
                )
            channels = Channels(each.count, self.source[1], 1, fitting_lanes(each.count, self.host.lanes))
            line = f.at(image, each.first * self.source[1])
            out = f.at(f.at(pixel, each.target), f.mul(tap, each.step))
            channels.sample(f, taps[each.group], line, out, scale=scales[each.group])
