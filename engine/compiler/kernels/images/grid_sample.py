"""Sampling of images at dynamic positions (grid_sample): the weighted neighbours of a position, for all channels.

Neighbours outside the image are not read; they count as zero.

Arguments: source, grid, target.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

from engine.compiler.codegen.ir import Function, Index, Module, Value, constant, vector
from engine.compiler.kernels.channels import fitting_lanes
from engine.compiler.kernels.functions.arithmetic import absolute, like
from engine.compiler.kernels.functions.rounding import fmod
from engine.compiler.kernels.kernel import Lines, block_of, start

Mode = Literal["bilinear", "nearest", "bicubic"]
Outside = Literal["zeros", "border", "reflection"]


@dataclass(frozen=True, slots=True)
class Tap:
    """Neighbour of a position on one axis or on all: offset, whether inside the image, weight."""

    offset: Index
    is_inside: Value
    weight: Value | None


@dataclass(frozen=True, slots=True)
class Channels:
    """Channels of a position, from an address on.

    Args:
        count: of channels.
        source, target: stride of channels, in elements.
        lanes: vector width.
    """

    count: int
    source: int
    target: int
    lanes: int

    def sample(
        self,
        f: Function,
        taps: Sequence[Tap],
        source: Value,
        target: Value,
        *,
        adds: bool = False,
        scale: Value | None = None,
    ) -> None:
        """Store the weighted sum of taps, scaled if ``scale`` is given, or add it to the target if ``adds``."""
        whole = self.count // self.lanes * self.lanes

        def each(at: Index, count: int) -> None:
            out = f.at(target, f.mul(at, self.target))
            before = f.load_lanes(vector(self.lanes), out, count, self.target) if adds else None
            total = self._sum(f, taps, f.at(source, f.mul(at, self.source)), count, before)
            total = total if scale is None else f.fmul(total, f.splat(scale, self.lanes))
            f.store_lanes(total, out, count, self.target)

        if whole:
            with f.loop(0, whole, self.lanes) as loop:
                each(loop.index, self.lanes)
        if whole < self.count:
            each(whole, self.count - whole)

    def _sum(self, f: Function, taps: Sequence[Tap], line: Value, count: int, total: Value | None) -> Value:
        type_ = vector(self.lanes)
        for tap in taps:
            value = f.load_lanes(type_, f.at(line, tap.offset), count, self.source)
            value = f.select(tap.is_inside, value, constant(0.0, type_))
            value = value if tap.weight is None else f.fmul(value, f.splat(tap.weight, self.lanes))
            total = value if total is None else f.fadd(total, value)
        assert total is not None
        return total


@dataclass(frozen=True, kw_only=True)
class Sampling(Lines):
    """Samples of the input at the positions of a grid.

    Args:
        sizes: of the image along its axes.
        channels: number of channels.
        source: strides of the images: batch, channels, axes.
        positions: positions along their axes; a line is the last axis.
        grid: strides of the grid: batch, axes of positions, coordinates; the last coordinate is of the first axis.
        target: strides of the result: batch, channels, axes of positions.
    """

    kind = "sample"
    batch: int
    channels: int
    sizes: tuple[int, ...]
    source: tuple[int, ...]
    positions: tuple[int, ...]
    grid: tuple[int, ...]
    target: tuple[int, ...]
    mode: Mode
    outside: Outside
    aligns_corners: bool

    @property
    def lines(self) -> int:
        """Return the lines of positions."""
        return self.batch * math.prod(self.positions[:-1])

    @property
    def line_bytes(self) -> int:
        return 16 * self.positions[-1] * (self.channels + 4)

    @property
    def flops(self) -> int:
        taps = math.prod([{"nearest": 1, "bilinear": 2, "bicubic": 4}[self.mode]] * len(self.sizes))
        return 2 * taps * self.lines * self.positions[-1] * self.channels

    def emit(self, module: Module) -> None:
        f, (source, grid, target), chunk = start(module, self, 3)
        rank = len(self.sizes)
        steps = self.source[1], self.target[1]
        lanes = fitting_lanes(self.channels, self.host.lanes)
        channels = Channels(self.channels, *steps, lanes)
        with f.loop(*block_of(f, chunk, self.block, self.lines)) as each:
            rest: Index = each.index
            line, out = grid, target
            for axis in reversed(range(rank - 1)):
                rest, index = f.divmod(rest, self.positions[axis])
                line, out = (
                    f.at(line, f.mul(index, self.grid[1 + axis])),
                    f.at(out, f.mul(index, self.target[2 + axis])),
                )
            image = f.at(source, f.mul(rest, self.source[0]))
            line, out = f.at(line, f.mul(rest, self.grid[0])), f.at(out, f.mul(rest, self.target[0]))
            with f.loop(0, self.positions[-1]) as column:
                at = f.at(line, f.mul(column.index, self.grid[rank]))
                coordinates = [f.load("float", f.at(at, (rank - 1 - axis) * self.grid[-1])) for axis in range(rank)]
                taps = [self._taps(f, coordinate, axis) for axis, coordinate in enumerate(coordinates)]
                pixel = f.at(out, f.mul(column.index, self.target[1 + rank]))
                channels.sample(f, together(f, taps), image, pixel)
        f.finish()

    def _taps(self, f: Function, coordinate: Value, axis: int) -> list[Tap]:
        """Emit the neighbours on an axis."""
        size, step = self.sizes[axis], self.source[2 + axis]
        position = self._position(f, coordinate, size)
        if self.mode == "bicubic":
            below = f.intrinsic("floor", position)
            neighbours = [f.fadd(below, like(below, tap)) for tap in range(-1, 3)]
            weights = [_keys(f, f.fsub(neighbour, position)) for neighbour in neighbours]
            bounded = [self._bounded(f, neighbour, size) for neighbour in neighbours]
            return [tap_at(f, *each, size, step) for each in zip(bounded, weights, strict=True)]
        position = self._bounded(f, position, size)
        if self.mode == "nearest":
            return [tap_at(f, f.intrinsic("roundeven", position), None, size, step)]
        return linear_taps(f, position, size, step)

    def _position(self, f: Function, coordinate: Value, size: int) -> Value:
        """Emit a coordinate from [-1, 1] in elements, rounded as in the reference."""
        one, two = like(coordinate, 1.0), like(coordinate, 2.0)
        above = f.fadd(coordinate, one)
        if self.aligns_corners:
            return f.fmul(f.fdiv(above, two), like(above, size - 1))
        return f.fdiv(f.fsub(f.fmul(above, like(above, size)), one), two)

    def _bounded(self, f: Function, position: Value, size: int) -> Value:
        """Emit a position moved into the image; NaN becomes 0."""
        if self.outside == "zeros":
            return position
        if self.outside == "reflection":
            position = self._reflected(f, position, size)
        position = f.select(f.compare("ogt", position, like(position, 0.0)), position, like(position, 0.0))
        last = like(position, size - 1)
        return f.select(f.compare("olt", position, last), position, last)

    def _reflected(self, f: Function, position: Value, size: int) -> Value:
        low, span = (0.0, size - 1) if self.aligns_corners else (-0.5, size)
        if span == 0:
            return like(position, 0.0)
        edge, width = like(position, low), like(position, span)
        distance = absolute(f, f.fsub(position, edge))
        extra = fmod(f, distance, width)
        half = f.fmul(f.intrinsic("floor", f.fdiv(distance, width)), like(position, 0.5))
        is_back = f.compare("one", half, f.intrinsic("floor", half))
        return f.fadd(f.select(is_back, f.fsub(width, extra), extra), edge)


def linear_taps(f: Function, position: Value, size: int, step: int) -> list[Tap]:
    """Emit the two neighbours of a position; those outside count as zero."""
    below = f.intrinsic("floor", position)
    upper, one = f.fsub(position, below), like(position, 1.0)
    return [
        tap_at(f, below, f.fsub(one, upper), size, step),
        tap_at(f, f.fadd(below, one), upper, size, step),
    ]


def tap_at(f: Function, position: Value, weight: Value | None, size: int, step: int) -> Tap:
    """Emit the tap at an integral position."""
    is_first = f.compare("oge", position, like(position, 0.0))
    is_inside = f.binary("and", is_first, f.compare("olt", position, like(position, size)))
    index = f.convert("fptosi", f.select(is_inside, position, like(position, 0.0)), "i64")
    return Tap(f.mul(index, step), is_inside, weight)


def together(f: Function, axes: Sequence[Sequence[Tap]]) -> list[Tap]:
    """Emit the taps of all axes combined."""
    found = []
    for taps in product(*axes):
        first, *others = taps
        offset, is_inside, weight = first.offset, first.is_inside, first.weight
        for each in others:
            offset, is_inside = f.add(offset, each.offset), f.binary("and", is_inside, each.is_inside)
            weight = None if weight is None or each.weight is None else f.fmul(weight, each.weight)
        found.append(Tap(offset, is_inside, weight))
    return found


def _keys(f: Function, distance: Value) -> Value:
    """Emit Keys' cubic kernel with a = -0.75."""
    x, a = absolute(f, distance), -0.75

    def number(value: float) -> Value:
        return like(x, value)

    inner = f.fsub(f.fmul(number(a + 2), x), number(a + 3))
    inner = f.fadd(f.fmul(f.fmul(inner, x), x), number(1))
    outer = f.fadd(f.fmul(f.fsub(f.fmul(number(a), x), number(5 * a)), x), number(8 * a))
    outer = f.fsub(f.fmul(outer, x), number(4 * a))
    outer = f.select(f.compare("oge", x, number(2)), number(0), outer)
    return f.select(f.compare("ole", x, number(1)), inner, outer)
