"""Winograd's F(m×m, 3×3) convolution of stride 1, channels-last, fused so that a block of tiles stays in the cache.

A chunk takes a block of output tiles and a group of output channels. It transforms the (m + 2)² pixels under each tile,
multiplies the transformed pixels of every position by that position's transformed weights in a register-blocked product,
and transforms the sums back to m × m pixels, adding bias and epilogue. What lies between is on the stack of the thread.
Where an image is no multiple of the tile the last tile is shifted back and some pixels are computed twice; where it is
smaller than a tile the pixels outside are zeros that are never read. Nothing outside the padded image is touched.

Arguments: padded image (its first pixel), packed weights, target, operands of the epilogue.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from engine.compiler.host import Host
from engine.compiler.ir import Function, Index, Module, Value, as_value, constant, vector
from engine.compiler.kernels.kernel import Epilogue, Kernel, Strides, finish_channels, place, start, vectors_of
from engine.compiler.kernels.winograd_blocking import Blocking
from engine.compiler.kernels.winograd_transforms import input_transform, output_transform, transform_filters
from engine.tensor import Array

UNROLL = 4


@dataclass(frozen=True, kw_only=True)
class Winograd(Kernel):
    """A 3×3 convolution of stride 1, dilation 1 and one group.

    Args:
        batch, rows, columns: of the output.
        source: strides of the padded image, (rows + 2) × (columns + 2); it begins at the image's first pixel.
        target: strides of the output.
        output_tile: m, 2, 4 or 6; see choose_output_tile().
        blocking: how the work falls into chunks and registers; see choose_blocking().
        lanes: of the vectors, as in Host.
    """

    kind = "winograd"
    batch: int
    rows: int
    columns: int
    in_channels: int
    out_channels: int
    source: Strides
    target: Strides
    output_tile: int
    blocking: Blocking
    lanes: int
    epilogue: Epilogue = field(default_factory=Epilogue)

    @property
    def positions(self) -> int:
        """Values of a transformed tile."""
        return (self.output_tile + 2) ** 2

    @cached_property
    def tiling(self) -> tuple[int, int]:
        """Tiles down and across an image."""
        return -(-self.rows // self.output_tile), -(-self.columns // self.output_tile)

    @property
    def tiles(self) -> int:
        return self.batch * self.tiling[0] * self.tiling[1]

    @cached_property
    def vectors(self) -> list[tuple[int, int]]:
        """The vectors (lanes, channels) of the output channels."""
        return vectors_of(self.out_channels, self.lanes)

    @property
    def group_vectors(self) -> int:
        """Vectors of output channels a chunk computes; the last group may have fewer."""
        return self.blocking.vectors * self.blocking.panels

    @property
    def groups(self) -> int:
        return -(-len(self.vectors) // self.group_vectors)

    @cached_property
    def group_floats(self) -> tuple[int, int]:
        """Floats the channels of a full group and of the last one take, empty lanes included."""
        size = self.group_vectors
        last = self.vectors[(self.groups - 1) * size :]
        return sum(lanes for lanes, _ in self.vectors[:size]), sum(lanes for lanes, _ in last)

    @property
    def packed_channels(self) -> int:
        return sum(lanes for lanes, _ in self.vectors)

    @property
    def depths(self) -> int:
        """Blocks the input channels fall into."""
        return -(-self.in_channels // self.blocking.depth)

    @cached_property
    def pitches(self) -> tuple[int, int]:
        """Floats from tile to tile among the transformed pixels and among the sums: odd multiples of a cache line."""
        depth = sum(lanes for lanes, _ in vectors_of(min(self.blocking.depth, self.in_channels), self.lanes))
        return _spread(depth), _spread(self.group_floats[0])

    @property
    def blocks(self) -> int:
        return -(-self.tiles // self.blocking.tiles)

    @property
    def chunks(self) -> int:
        return self.groups * self.blocks

    @property
    def flops(self) -> int:
        """Operations of the direct convolution this replaces, so that rates compare."""
        return 2 * self.batch * self.rows * self.columns * self.out_channels * self.in_channels * 9

    def pack(self, weight: Array, bias: Array | None) -> Array:
        """Weights (O, I, 3, 3) and bias (O,), transformed in float64, in the order the kernel streams them, (floats,)."""
        packed = np.zeros(self.packed_channels * (1 + self.positions * self.in_channels), np.float32)
        if bias is not None:
            packed[: self.out_channels] = bias
        at, size = self.packed_channels, self.blocking.vectors
        for first in range(0, len(self.vectors), self.group_vectors):
            panels = [self.vectors[k : k + size] for k in range(first, first + self.group_vectors, size)]
            panels = [[each for each in panel] for panel in panels if panel]
            channel = first * self.lanes
            count = sum(real for panel in panels for _, real in panel)
            filters = transform_filters(weight[channel : channel + count], self.output_tile)
            width = sum(lanes for panel in panels for lanes, _ in panel)
            filters = np.pad(filters.astype(np.float32), ((0, 0), (0, 0), (0, width - count)))
            for depth in range(0, self.in_channels, self.blocking.depth):
                some = filters[:, depth : depth + self.blocking.depth]
                ends = np.cumsum([sum(lanes for lanes, _ in panel) for panel in panels])
                parts = [each.reshape(self.positions, -1) for each in np.split(some, ends[:-1], axis=2)]
                packed[at : at + some.size] = np.concatenate(parts, axis=1).ravel()
                at += some.size
        return packed

    def emit(self, module: Module, host: Host) -> None:
        tile_functions = self._emit_products(module)
        loader = self._emit_input(module)
        storers = [self._emit_output(module, kind) for kind in dict.fromkeys((self.vectors[0], self.vectors[-1]))]
        f, (image, weights, target, *extras), chunk = start(module, self, 3 + len(self.epilogue.operands))
        pitch, sum_pitch = self.pitches
        tiles = self.blocking.tiles
        transformed = f.op("ptr", f"alloca [{self.positions * tiles * pitch} x float], align 64")
        sums = f.op("ptr", f"alloca [{self.positions * tiles * sum_pitch} x float], align 64")
        group, block = f.divmod(chunk, self.blocks)
        first_tile = f.minimum(f.mul(block, tiles), self.tiles - tiles)
        width = self._of_group(f, group, *self.group_floats)
        stream = f.at(weights, f.add(self.packed_channels, f.mul(group, self.group_floats[0] * self.positions * self.in_channels)))
        if self.depths > 1:
            self._clear(f, sums, self.positions * tiles * sum_pitch)
        with f.loop(0, self.depths) as depth:
            channel = f.mul(depth.index, self.blocking.depth) if self.depths > 1 else 0
            count = f.minimum(f.sub(self.in_channels, channel), self.blocking.depth)
            with f.loop(0, tiles) as tile:
                n, h, w = self._origin(f, f.add(first_tile, tile.index))
                f.call(
                    loader,
                    [
                        place(f, image, self.source, n, h, w, channel),
                        f.at(transformed, f.mul(tile.index, pitch)),
                        as_value(count),
                    ],
                )
            part = f.at(stream, f.mul(f.mul(channel, width), self.positions))
            self._multiply(f, tile_functions, group, part, count, width, transformed, sums)
        self._store(f, storers, group, first_tile, sums, weights, target, extras)
        f.finish()

    def _of_group(self, f: Function, group: Index, full: int, last: int) -> Index:
        """What differs between the last group and the others."""
        if full == last or self.groups == 1:
            return last
        return f.select(f.less(group, self.groups - 1), as_value(full), as_value(last))

    def _clear(self, f: Function, address: Value, floats: int) -> None:
        zero = constant(0.0, vector(self.lanes))
        with f.loop(0, floats, self.lanes) as each:
            f.store(zero, f.at(address, each.index))

    def _origin(self, f: Function, tile: Index) -> tuple[Index, Index, Index]:
        """Image, row and column of a tile's first output pixel; the last tile of a row or column is shifted back."""
        rest, across = f.divmod(tile, self.tiling[1])
        n, down = f.divmod(rest, self.tiling[0])
        h = f.minimum(f.mul(down, self.output_tile), self.rows - self.output_tile)
        w = f.minimum(f.mul(across, self.output_tile), self.columns - self.output_tile)
        return n, h if self.tiling[0] > 1 else 0, w if self.tiling[1] > 1 else 0

    def _multiply(
        self,
        f: Function,
        functions: tuple[str, str],
        group: Index,
        stream: Value,
        count: Index,
        width: Index,
        transformed: Value,
        sums: Value,
    ) -> None:
        """Every position's product: tiles times panels of output channels."""
        pitch, sum_pitch = self.pitches
        tiles, at_once = self.blocking.tiles, self.blocking.rows
        full_panel = self.blocking.vectors * self.lanes
        last_panels = -(-len(self.vectors[(self.groups - 1) * self.group_vectors :]) // self.blocking.vectors)
        panels = self._of_group(f, group, self.blocking.panels, last_panels)
        with f.loop(0, self.positions) as position:
            source = f.at(transformed, f.mul(position.index, tiles * pitch))
            result = f.at(sums, f.mul(position.index, tiles * sum_pitch))
            weights = f.at(stream, f.mul(f.mul(position.index, width), count))

            def panel_product(panel: Index, function: str) -> None:
                weight = f.at(weights, f.mul(f.mul(panel, full_panel), count))
                target = f.at(result, f.mul(panel, full_panel))
                with f.loop(0, tiles, at_once) as row:
                    first = f.minimum(row.index, tiles - at_once)
                    f.call(
                        function,
                        [
                            f.at(source, f.mul(first, pitch)),
                            weight,
                            f.at(target, f.mul(first, sum_pitch)),
                            as_value(count),
                        ],
                    )

            if functions[0] == functions[1]:
                with f.loop(0, panels) as each:
                    panel_product(each.index, functions[0])
                continue_with = None
            else:
                continue_with = functions[1]
            if continue_with is not None:
                is_last = self._of_group(f, group, 0, 1)
                with f.loop(0, f.sub(panels, is_last)) as each:
                    panel_product(each.index, functions[0])
                if isinstance(is_last, int):
                    panel_product(last_panels - 1, functions[1])
                else:
                    with f.when(f.less(0, is_last)):
                        panel_product(last_panels - 1, functions[1])

    def _emit_products(self, module: Module) -> tuple[str, str]:
        """The functions of a full panel and of the last one."""
        size = self.blocking.vectors
        panels = [tuple(self.vectors[k : k + size]) for k in range(0, len(self.vectors), size)]
        full = self._emit_product(module, [lanes for lanes, _ in panels[0]])
        if [lanes for lanes, _ in panels[-1]] == [lanes for lanes, _ in panels[0]]:
            return full, full
        return full, self._emit_product(module, [lanes for lanes, _ in panels[-1]])

    def _emit_product(self, module: Module, panel: list[int]) -> str:
        """A few tiles times a panel at one position."""
        f = module.function(
            f"{self.name}_product_{'_'.join(map(str, panel))}",
            [("ptr", "pixels"), ("ptr", "weights"), ("ptr", "sums"), ("i64", "count")],
        )
        f.linkage, f.attributes = "internal ", "nounwind noinline"
        pixels, weights, sums, count = f.parameters
        pitch, sum_pitch = self.pitches
        starts, width = [sum(panel[:k]) for k in range(len(panel))], sum(panel)
        places = [f.at(sums, row * sum_pitch + first) for row in range(self.blocking.rows) for first in starts]
        kinds = [vector(lanes) for _ in range(self.blocking.rows) for lanes in panel]
        if self.depths > 1:
            totals = [f.load(kind, address) for kind, address in zip(kinds, places, strict=True)]
        else:
            totals = [constant(0.0, kind) for kind in kinds]
        unroll = max(
            k for k in range(1, UNROLL + 1) if self.in_channels % k == 0 and (self.depths == 1 or self.blocking.depth % k == 0)
        )
        with f.loop(0, count, unroll, carry=totals) as loop:
            at, weight = f.at(pixels, loop.index), f.at(weights, f.mul(loop.index, width))
            totals = loop.carried
            for k in range(unroll):
                columns = [f.load(vector(lanes), f.at(weight, k * width + first)) for lanes, first in zip(panel, starts, strict=True)]
                following = []
                for row in range(self.blocking.rows):
                    value = f.load("float", f.at(at, row * pitch + k))
                    for number, lanes in enumerate(panel):
                        following.append(
                            f.fma(f.splat(value, lanes), columns[number], totals[row * len(panel) + number])
                        )
                totals = following
            loop.carry(totals)
        for total, address in zip(loop.results, places, strict=True):
            f.store(total, address)
        f.finish()
        return f.name

    def _emit_input(self, module: Module) -> str:
        """The transform of the pixels under one tile, a block of channels at a time."""
        f = module.function(f"{self.name}_input", [("ptr", "image"), ("ptr", "transformed"), ("i64", "count")])
        f.linkage, f.attributes = "internal ", "nounwind noinline"
        image, transformed, count = f.parameters
        size, step = self.output_tile + 2, self.blocking.tiles * self.pitches[0]
        height, width = min(self.rows + 2, size), min(self.columns + 2, size)

        def transform(channel: Index, lanes: int, real: int) -> None:
            kind = vector(lanes)
            source, target = f.at(image, channel), f.at(transformed, channel)
            columns = []
            for j in range(size):
                pixels = [
                    f.load_lanes(kind, f.at(source, self.source.offset(0, i, j)), real)
                    if i < height and j < width
                    else constant(0.0, kind)
                    for i in range(size)
                ]
                columns.append(input_transform(f, pixels, self.output_tile))
            for i in range(size):
                row = input_transform(f, [column[i] for column in columns], self.output_tile)
                for j, value in enumerate(row):
                    f.store(value, f.at(target, (i * size + j) * step))

        *whole, (lanes, real) = vectors_of(self.in_channels, self.lanes)
        if real == lanes:
            with f.loop(0, count, self.lanes) as each:
                transform(each.index, lanes, real)
        elif not whole:
            transform(0, lanes, real)
        else:
            full, _ = f.divmod(count, self.lanes)
            stop = f.mul(full, self.lanes)
            with f.loop(0, stop, self.lanes) as each:
                transform(each.index, self.lanes, self.lanes)
            with f.when(f.less(stop, count)):
                transform(stop, lanes, real)
        f.finish()
        return f.name

    def _store(
        self,
        f: Function,
        storers: list[str],
        group: Index,
        first_tile: Index,
        sums: Value,
        weights: Value,
        target: Value,
        extras: list[Value],
    ) -> None:
        last_vectors = len(self.vectors) - (self.groups - 1) * self.group_vectors
        vectors = self._of_group(f, group, self.group_vectors, last_vectors)
        first_channel = f.mul(group, self.group_floats[0])
        with f.loop(0, self.blocking.tiles) as tile:
            n, h, w = self._origin(f, f.add(first_tile, tile.index))
            base = f.at(sums, f.mul(tile.index, self.pitches[1]))

            def finish(number: Index, function: str) -> None:
                offset = f.mul(number, self.lanes)
                channel = f.add(first_channel, offset)
                arguments = [f.at(base, offset), f.at(weights, channel), place(f, target, self.target, n, h, w, channel)]
                for extra, operand in zip(extras, self.epilogue.operands, strict=True):
                    arguments.append(place(f, extra, operand, n, h, w, channel))
                f.call(function, arguments)

            if len(storers) == 1:
                with f.loop(0, vectors) as each:
                    finish(each.index, storers[0])
            else:
                is_last = self._of_group(f, group, 0, 1)
                with f.loop(0, f.sub(vectors, is_last)) as each:
                    finish(each.index, storers[0])
                if isinstance(is_last, int):
                    finish(last_vectors - 1, storers[1])
                else:
                    with f.when(f.less(0, is_last)):
                        finish(last_vectors - 1, storers[1])

    def _emit_output(self, module: Module, kind_of: tuple[int, int]) -> str:
        """The transform of one tile's sums of one vector of channels to pixels."""
        lanes, real = kind_of
        kind = vector(lanes)
        parameters = [("ptr", "sums"), ("ptr", "bias"), ("ptr", "target")]
        parameters += [("ptr", f"operand{k}") for k in range(len(self.epilogue.operands))]
        f = module.function(f"{self.name}_output_{real}", parameters)
        f.linkage, f.attributes = "internal ", "nounwind noinline"
        sums, bias, target, *extras = f.parameters
        size, step = self.output_tile + 2, self.blocking.tiles * self.pitches[1]
        offset = f.load(kind, bias)
        columns = [
            output_transform(f, [f.load(kind, f.at(sums, (i * size + j) * step)) for i in range(size)], self.output_tile)
            for j in range(size)
        ]
        for row in range(min(self.output_tile, self.rows)):
            values = output_transform(f, [column[row] for column in columns], self.output_tile)
            for column in range(min(self.output_tile, self.columns)):
                addresses = [
                    f.at(each, operand.offset(0, row, column))
                    for each, operand in zip(extras, self.epilogue.operands, strict=True)
                ]
                value = finish_channels(f, self.epilogue, f.fadd(values[column], offset), addresses, real)
                f.store_lanes(value, f.at(target, self.target.offset(0, row, column)), real)
        f.finish()
        return f.name


def _spread(floats: int) -> int:
    """The least odd multiple of 16 floats that holds so many."""
    lines = -(-floats // 16)
    return 16 * (lines | 1)
