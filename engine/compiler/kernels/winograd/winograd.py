"""Winograd convolution, channels-last, fused so that a block of tiles stays in the cache.

A chunk is a block of output tiles by a group of output channels. It transforms the pixels under each tile, multiplies
the transformed pixels of every position by that position's transformed weights in a register-tiled product, and
transforms the sums back to the pixels of a tile, with bias and epilogue. Filters transformed by rows are summed part by
part, as are blocks of input channels and planes of volumes: each part reads pixels at an offset. Intermediate arrays
are on the thread's stack, at most a megabyte.

Where an image is not a multiple of the tile, the last tile is shifted back and stores only new pixels; where it is
smaller than a tile, pixels outside are zeros and not read. Nothing outside the padded image is accessed.

A non-finite pixel makes all outputs of the tiles over it NaN; in a direct convolution only the sums over its window.
Then the fault flag is raised: the result must be computed in another way.

Arguments: padded image (its first pixel), packed weights, target, operands of the epilogue, fault flag (an int). The
target must not share memory with the image or with operands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from engine.compiler.codegen.ir import Function, Index, Module, Value, as_value, constant, is_dynamic, vector
from engine.compiler.kernels.channels import unroll_factor, width_of
from engine.compiler.kernels.kernel import element_address, start
from engine.compiler.kernels.target import Target
from engine.compiler.kernels.windows import is_clipped
from engine.compiler.kernels.winograd.blocking import FETCH_TILES
from engine.compiler.kernels.winograd.layout import Layout
from engine.compiler.kernels.winograd.stages import emit_input, emit_output, emit_product
from engine.compiler.kernels.winograd.transforms import Run


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Values shared by the stages of one chunk."""

    f: Function
    group: Index
    first_tile: Index
    transformed: Value
    sums: Value


@dataclass(frozen=True, kw_only=True)
class Winograd(Layout):
    """Winograd convolution of one group; see ``Layout``."""

    kind = "winograd"
    sets_fault_flag = True

    def emit(self, module: Module) -> None:
        s, tiles = self.scratch, self.blocking.tiles
        loader, products, storers = self._emit_inner(module)
        f, pointers, index = start(module, self, 4 + len(self.epilogue.operands))
        image, weights, *addresses, fault_flag = pointers
        target = Target.of(f, self.epilogue, self.target, addresses)
        group, block = f.divmod(index, self.blocks)
        first_tile = self._first_tile(f, f.mul(block, tiles))
        positions = self.filtering.positions
        memory = [f.reserve(positions * step) for step in (s.step, s.sum_step)]
        chunk = _Chunk(f, group, first_tile, *memory)
        if self.rounds > 1:
            with f.loop(0, positions) as position:
                sums = f.at(chunk.sums, f.mul(position.index, s.sum_step))
                with f.loop(0, tiles * s.sum_pitch, self.host.lanes) as each:
                    f.store(constant(0.0, vector(self.host.lanes)), f.at(sums, each.index))
        width = self._of_group(chunk, *self.widths)
        before = f.mul(group, self.parts * self.part_floats(self.widths[0]))
        stream = f.at(weights, f.add(self.bias_floats, before))
        with f.loop(0, self.rounds) as each_round:
            part, depth = f.divmod(each_round.index, self.depths)
            if self.parts == 1:
                part, depth = 0, each_round.index
            plane, of_plane = (0, part) if self.planes == 1 else f.divmod(part, self.filtering.rounds)
            channel = f.mul(depth, self.blocking.depth) if self.depths > 1 else 0
            count = f.minimum(f.sub(self.in_channels, channel), self.blocking.depth)
            begin = f.at(image, self._shift(f, of_plane))
            stream_of = f.at(stream, f.mul(part, f.mul(width, self.part_floats(1))))
            with self._where_read(chunk, plane):
                with f.loop(0, tiles) as tile:
                    self._transform(chunk, loader, begin, tile.index, plane, channel, count)
                for run in self.filtering.runs:
                    with f.loop(run.first, run.first + run.count) as each:
                        self._multiply(chunk, products, run, each.index, stream_of, channel, count, width)
        self._store(chunk, storers, weights, target, fault_flag)
        f.finish()

    def _emit_inner(self, module: Module) -> tuple[str, list[str], list[str]]:
        """Emit the functions of the stages; a different last panel or vector has its own."""
        s, blocking = self.scratch, self.blocking
        loader = emit_input(
            module, f"{self.name}_input", s, self.within(self.source), self.extent, self.in_channels, self.host.lanes
        )
        counts = [self.in_channels, *([blocking.depth] if self.depths > 1 else [])]
        most = unroll_factor(blocking.at_once * blocking.vectors)
        unroll = max(k for k in range(1, most + 1) if all(count % k == 0 for count in counts))
        memory = self.host.memory
        # Weights beyond the L2 cache are prefetched, if products leave time for it.
        is_far = 4 * self.packed_floats > memory.second_bytes // 2
        ahead = 3 * memory.ahead_bytes // 4 if is_far and blocking.at_once >= FETCH_TILES else 0
        panels = dict.fromkeys(tuple(lanes for lanes, _ in each) for each in (self.groups[0][0], self.groups[-1][-1]))
        products = [
            emit_product(
                module,
                f"{self.name}_product{k}",
                s,
                panel,
                blocking.at_once,
                unroll=unroll,
                ahead=ahead,
                adds=self.rounds > 1,
            )
            for k, panel in enumerate(panels)
        ]
        vectors = dict.fromkeys((self.groups[0][0][0], self.groups[-1][-1][-1]))
        target = self.within(self.target)
        tail = replace(self.epilogue, operands=tuple(map(self.within, self.epilogue.operands)))
        top, left = (None if is_dynamic(each) else each for each in self.overlap)
        storers = [
            emit_output(module, f"{self.name}_output{k}", s, target, self.size, (top, left), tail, *each)
            for k, each in enumerate(vectors)
        ]
        return loader, products, storers

    def _origin(self, f: Function, tile: Index) -> tuple[Index, Index, Index]:
        """Emit image, row and column of the first output pixel of a tile; last tiles are shifted back."""
        n, phase, down, across = self._number(f, tile)
        axes = zip((down, across), self.size, self._size(f, phase), self.filtering.tile, strict=True)
        h, w = (0 if most < m else f.minimum(f.mul(at, m), f.sub(size, m)) for at, most, size, m in axes)
        if self.dilation == 1:
            return n, h, w
        (down, across), first = self.dilations, f.divmod(phase, self.dilation)
        return n, f.add(f.mul(h, down), first[0]), f.add(f.mul(w, across), first[1])

    def _first_tile(self, f: Function, tile: Index) -> Index:
        """Emit the first tile of a block; the last block is shifted back to be whole."""
        last = self.tiles - self.blocking.tiles
        return f.maximum(f.minimum(tile, last), 0) if is_dynamic(last) else f.minimum(tile, last)

    def _number(self, f: Function, tile: Index) -> tuple[Index, Index, Index, Index]:
        """Emit a tile's image, image of every d-th pixel, and number down and across.

        Images of dynamic sizes may have fewer tiles than a block: then the last one is computed several times.
        """
        if is_dynamic(self.tiles):
            tile = f.minimum(tile, self.tiles - 1)
        rest, across = f.divmod(tile, self.tiling[1])
        n, down = f.divmod(rest, self.tiling[0])
        n, phase = (n, 0) if self.dilation == 1 else f.divmod(n, self.phases)
        return n, phase, down, across

    def _size(self, f: Function, phase: Index) -> tuple[Index, Index]:
        """Emit rows and columns of one of the images of every d-th pixel."""
        rows, columns = self.size
        if not self.is_uneven:
            return rows, columns
        return rows, f.divmod(f.sub(self.columns + self.dilation - 1, phase), self.dilation)[0]

    def _shift(self, f: Function, part: Index) -> Index:
        """Emit the offset, in floats, of the pixels that a part of the filters reads."""
        if self.filtering.rounds == 1:
            return 0
        source, (_, across) = self.within(self.source), self.filtering.parts
        down, along = f.divmod(part, across)
        column = f.minimum(f.mul(along, self.filtering.taps), self.filtering.kernel[1] - self.filtering.taps)
        return f.add(f.mul(down, source.h * self.dilation), f.mul(column, source.w))

    def _under(
        self, f: Function, image: Value, origin: tuple[Index, Index, Index], plane: Index, channel: Index
    ) -> Value:
        """Emit the address of the pixels under a tile, in the padded image or a plane of the volume."""
        n, h, w = origin
        stride, (n, _) = self.filtering.stride, self._plane(f, n, plane)
        return element_address(f, image, self.source, n, f.mul(h, stride), f.mul(w, stride), channel)

    def _plane(self, f: Function, n: Index, plane: Index) -> tuple[Index, Value]:
        """Emit the plane that a plane of taps reads, or the nearest existing one, and whether it exists."""
        if self.depth is None:
            return n, constant(1, "i1")
        volume, window = f.divmod(n, self.depth.count)
        wanted = f.add(self.depth.first(f, window), f.mul(plane, self.depth.dilation))
        found = f.maximum(f.minimum(wanted, self.depth.size - 1), 0)
        is_there = f.compare("eq", as_value(found), as_value(wanted))
        return f.add(f.mul(volume, self.depth.size), found), is_there

    def _where_read(self, chunk: _Chunk, plane: Index) -> AbstractContextManager[object]:
        """Skip a plane of taps that no tile of a chunk reads, at the ends of the volume."""
        f = chunk.f
        if not is_clipped(self.depth):
            return nullcontext()
        ends = chunk.first_tile, f.add(chunk.first_tile, self.blocking.tiles - 1)
        first, last = (self._number(f, tile)[0] for tile in ends)
        differ = f.compare("ne", as_value(first), as_value(last))
        return f.when(f.binary("or", differ, self._plane(f, first, plane)[1]))

    def _transform(
        self, chunk: _Chunk, loader: str, image: Value, tile: Index, plane: Index, channel: Index, count: Index
    ) -> None:
        """Emit the transform of the pixels under a tile; zeros if the volume has no such plane."""
        f, s = chunk.f, self.scratch
        origins = [self._origin(f, f.add(chunk.first_tile, f.add(tile, k))) for k in (0, 1)]
        pixels = [self._under(f, image, each, plane, channel) for each in origins]
        memory = f.at(chunk.transformed, f.mul(tile, s.pitch))
        if not is_clipped(self.depth):
            f.call(loader, [*pixels, memory, as_value(count)])
            return
        _, is_there = self._plane(f, origins[0][0], plane)
        with f.when(is_there):
            f.call(loader, [*pixels, memory, as_value(count)])
        with f.unless(is_there):
            nothing = constant(0.0, vector(self.host.lanes))
            with f.loop(0, self.filtering.positions) as position, f.loop(0, count, self.host.lanes) as each:
                f.store(nothing, f.at(memory, f.add(f.mul(position.index, s.step), each.index)))

    def _covered(self, f: Function, tile: Index) -> tuple[Index, Index]:
        """Emit the rows and columns of a tile stored by earlier tiles: storing them again could round differently."""
        _, phase, down, across = self._number(f, tile)
        last = [*zip((down, across), self.tiling, self.overlap, strict=True)]
        top, left = (
            f.mul(f.maximum(f.sub(at, count - 2), 0), shared)
            if shared is not None and (is_dynamic(shared) or shared)
            else 0
            for at, count, shared in last
        )
        if self.overlap[1] is None:  # a last tile that repeats the one before stores the same
            width = self.filtering.tile[1]
            full = f.mul(across, width)
            left = f.sub(full, f.minimum(full, f.sub(self._size(f, phase)[1], width)))
        return top, left

    def _of_group(self, chunk: _Chunk, full: int, last: int) -> Index:
        """Emit a number that differs for the last group."""
        if full == last or len(self.groups) == 1:
            return last
        return chunk.f.select(chunk.f.less(chunk.group, len(self.groups) - 1), as_value(full), as_value(last))

    def _each(
        self, chunk: _Chunk, functions: Sequence[str], counts: tuple[int, int], body: Callable[[Index, str], None]
    ) -> None:
        """Emit ``body`` for every panel or vector of the group; the very last may have its own function."""
        f, is_odd = chunk.f, len(functions) > 1
        regular = self._of_group(chunk, counts[0], counts[1] - is_odd)
        if regular != 0:
            with f.loop(0, regular) as each:
                body(each.index, functions[0])
        if is_odd and len(self.groups) == 1:
            body(counts[1] - 1, functions[1])
        elif is_odd:
            with f.when(f.less(len(self.groups) - 2, chunk.group)):
                body(counts[1] - 1, functions[1])

    def _multiply(
        self,
        chunk: _Chunk,
        functions: Sequence[str],
        run: Run,
        number: Index,
        stream: Value,
        channel: Index,
        count: Index,
        width: Index,
    ) -> None:
        """Emit one filter value's products: the block's tiles, at every position it multiplies, by all panels."""
        f, s, at_once = chunk.f, self.scratch, self.blocking.at_once
        position, rows = (
            f.add(run.position, f.mul(f.sub(number, run.first), run.repeats)),
            self.blocking.tiles * run.repeats,
        )
        source, sums = f.at(chunk.transformed, f.mul(position, s.step)), f.at(chunk.sums, f.mul(position, s.sum_step))
        before = f.add(f.mul(f.mul(channel, width), self.filtering.weights), f.mul(f.mul(number, width), count))
        weights = f.at(stream, before)

        def multiply(panel: Index, function: str) -> None:
            first = f.mul(panel, width_of(self.groups[0][0]))
            weight, target = f.at(weights, f.mul(first, count)), f.at(sums, first)
            with f.loop(0, rows, at_once) as each:
                row = f.minimum(each.index, rows - at_once)
                pixels, result = f.at(source, f.mul(row, s.pitch)), f.at(target, f.mul(row, s.sum_pitch))
                f.call(function, [pixels, weight, result, as_value(count)])

        self._each(chunk, functions, (len(self.groups[0]), len(self.groups[-1])), multiply)

    def _store(
        self, chunk: _Chunk, functions: Sequence[str], weights: Value, target: Target, fault_flag: Value
    ) -> None:
        """Emit the transform of the sums of every tile and vector to pixels."""
        f, s = chunk.f, self.scratch
        counts = sum(map(len, self.groups[0])), sum(map(len, self.groups[-1]))
        with f.loop(0, self.blocking.tiles) as tile:
            origin = self._origin(f, f.add(chunk.first_tile, tile.index))
            covered = self._covered(f, f.add(chunk.first_tile, tile.index))
            sums = f.at(chunk.sums, f.mul(tile.index, s.sum_pitch))

            def store(number: Index, function: str) -> None:
                offset = f.mul(number, self.host.lanes)
                channel = f.add(f.mul(chunk.group, self.widths[0]), offset)
                addresses = target.at(*origin, channel).addresses
                arguments = [f.at(sums, offset), f.at(weights, channel), *addresses]
                f.call(function, [*map(as_value, covered), fault_flag, *arguments])

            self._each(chunk, functions, counts, store)
