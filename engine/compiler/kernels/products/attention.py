"""Attention: softmax(query @ key.T * scale + masks) @ value, in blocks of queries and blocks of keys.

The scores of a tile of queries with a block of keys are all that is ever in memory, on the stack of a thread. Where
there are several blocks, what was summed before is scaled down whenever a larger score is met (Milakov and Gimelshein
2018, Dao et al. 2022). Keys that lie in rows are packed into columns by every chunk; for many queries they should lie
in columns. Tiles that would hang over the last query are shifted back, and have sums of their own.

A row of which every key is left out gives zeros, or NaN if asked for. Blocks and keys that no query of a tile sees are
not looked at: those behind it in causal attention, and those at the end that a mask leaves no weight.

Arguments: query, key, value, target, masks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

from engine.compiler.codegen.host import Host
from engine.compiler.codegen.ir import Function, Index, Module, Sizes, Value, as_value, constant
from engine.compiler.kernels.channels import Panel, load_panel, panels_of, width_of
from engine.compiler.kernels.convolution.conv import rank_tiles
from engine.compiler.kernels.grid import Grid
from engine.compiler.kernels.kernel import Kernel, derived, start
from engine.compiler.kernels.products.attention_rows import Mask, RowCode
from engine.compiler.kernels.products.attention_sight import Sight
from engine.compiler.kernels.products.attention_tiles import TileFunctions
from engine.compiler.kernels.products.matrix import Matrix, indices_of
from engine.compiler.kernels.products.packing import Packing, each_of

# Of the second-level cache, what keys and values of a block may take; and a block's keys at most.
BLOCK_SHARE = 3 / 8
MOST_KEYS = 512
# For as many a tile is chosen where it must suit any number.
TYPICAL_KEYS = 128
# Queries of a chunk that meet a block of keys while it is near; and what may be summed on the stack.
WANTED_QUERIES = 96
SUM_BYTES = 128 * 1024


@dataclass(frozen=True, kw_only=True)
class Attention(Kernel):
    """Attention of static geometry; see make_attention().

    Args:
        batch: sizes of the dimensions in front.
        queries, keys, width, values: rows of the query, of key and value; columns of query and key, and of the value.
        query, key, value, target: where they lie. The value lies in rows, the key in rows or in columns.
        masks: what is done to the scores, in their order.
        scale: of the scores.
        is_causal: query l sees the keys 0 to l.
        is_zero: whether a row that sees no key gives zeros; else NaN.
        rows: queries of a tile.
        vectors: of a panel of keys, and of values.
        is_padded: whether keys lie in columns, with room for whole panels of them: then code can be told how many of
            everything there are when it runs.
    """

    kind = "attention"
    batch: tuple[int, ...]
    queries: int
    keys: int
    width: int
    values: int
    query: Matrix
    key: Matrix
    value: Matrix
    target: Matrix
    masks: tuple[Mask, ...] = ()
    scale: float
    is_causal: bool = False
    is_zero: bool = True
    rows: int
    vectors: tuple[int, int]
    is_padded: bool = False

    def opened(self, sizes: Sizes) -> Self:
        if not self.is_padded:
            return self
        opened = self.with_open(sizes, "batch", "queries", "keys", "query", "key", "value", "target", "masks")
        lines = replace(opened.key, column=sizes.open(self.key.column))
        counts = [tuple(map(sizes.count, each)) for each in (self.grid.sizes, self.grid.block)]
        grid = Grid((counts[0][0], counts[0][1]), (counts[1][0], counts[1][1]))
        return derived(replace(opened, key=lines), grid=grid)

    @property
    def stacked(self) -> int:
        """How often attention is computed, each time with its own query."""
        return math.prod(self.batch)

    @property
    def pairs(self) -> int:
        """Queries with a key they see."""
        if not self.is_causal:
            return self.queries * self.keys
        within = min(self.queries, self.keys)
        return within * (within + 1) // 2 + (self.queries - within) * self.keys

    @property
    def flops(self) -> int:
        return 2 * self.stacked * self.pairs * (self.width + self.values)

    @cached_property
    def block(self) -> int:
        """Keys of a block."""
        floats = int(BLOCK_SHARE * self.host.memory.second_bytes) // (4 * (self.width + self.values))
        step = self.host.lanes * self.vectors[0]
        most = max(step, min(MOST_KEYS, floats) // step * step)
        if self.is_padded:  # what is reserved must not depend on how many there are
            return most
        if self.keys <= most:
            return self.keys
        blocks = -(-self.keys // most)
        return -(-self.keys // (blocks * step)) * step

    @property
    def value_panels(self) -> tuple[Panel, ...]:
        """Vectors of the value's columns."""
        return panels_of(self.values, self.host.lanes, self.vectors[1])

    @property
    def value_width(self) -> int:
        """Floats of a line of packed values."""
        return sum(map(width_of, self.value_panels))

    @property
    def has_blocks(self) -> bool:
        """Whether there is more than one block of keys."""
        return self.block < self.keys

    @property
    def most_tiles(self) -> int:
        """Of a chunk, one after the other."""
        most = max(1, WANTED_QUERIES // self.rows)
        return max(1, min(most, SUM_BYTES // (4 * self.rows * self.value_width))) if self.has_blocks else most

    @cached_property
    def grid(self) -> Grid:
        """Tiles of queries, and how often attention is computed; what a chunk has of them."""
        tiles = -(-self.queries // self.rows)
        blocks = -(-tiles // self.most_tiles)
        work = self.flops / (tiles * self.stacked)
        few = max(1, min(self.stacked, int(self.host.chunk_flops / (work * tiles))))
        grid = Grid((tiles, self.stacked), (-(-tiles // blocks), few))
        return grid.cut(self.host.wanted_chunks, work, self.host.chunk_flops)

    @property
    def chunks(self) -> int:
        return self.grid.chunks

    @property
    def row_code(self) -> RowCode:
        """How scores become weights."""
        # Rows a line more than a power of two apart fall into different sets of the first-level cache.
        whole = -(-self.block // self.key_width) * self.key_width
        return RowCode(
            rows=self.rows,
            pitch=whole + self.host.memory.line_floats,
            lanes=self.host.lanes,
            masks=self.masks,
            is_causal=self.is_causal,
            has_blocks=self.has_blocks,
            is_zero=self.is_zero,
            scale=self.scale,
        )

    @property
    def key_width(self) -> int:
        """Keys of a full panel."""
        return self.host.lanes * self.vectors[0]

    @property
    def sight(self) -> Sight | None:
        """What tells how many keys a tile sees, where its mask can."""
        if self.is_causal or len(self.masks) != 1 or self.keys <= self.host.lanes:
            return None
        (mask,) = self.masks
        lies_in_rows = self.query.column == 1 and (self.value.column == 1 or self.values == 1)
        if mask.matrix.column != 1 or not lies_in_rows or 1 not in (self.key.row, self.key.column):
            return None
        return Sight(
            rows=self.rows,
            keys=self.keys,
            width=self.width,
            values=self.values,
            query=self.query,
            key=self.key,
            value=self.value,
            mask=mask,
            scale=self.scale,
            lanes=self.host.lanes,
        )

    def packed_keys(self, keys: int) -> Packing:
        """Keys of a block as columns."""
        turned = Matrix((), self.key.column, self.key.row)
        return Packing(source=turned, rows=self.width, panels=panels_of(keys, self.host.lanes, self.vectors[0]))

    @property
    def packs_keys(self) -> bool:
        """Whether keys lie in rows."""
        return self.keys > 1 and self.key.row != 1

    def emit(self, module: Module) -> None:
        f, (query, key, value, target, *masks), chunk = start(module, self, 4 + len(self.masks))
        tiles, stack = self.grid.ranges(f, chunk)
        most = self.most_tiles if self.is_padded else self.grid.block[0]
        room = most * self.rows if self.has_blocks else self.rows
        states = f.reserve(room * RowCode.STATE)
        scratch = _Scratch(
            keys=f.reserve(self.packed_keys(self.block).floats) if self.packs_keys else states,
            scores=f.reserve(self.rows * self.row_code.pitch),
            sums=f.reserve(room * self.value_width) if self.has_blocks else states,
            states=states,
            seen=states if self.sight is None else f.reserve(most, 8),
        )
        functions = TileFunctions(
            module=module,
            name=self.name,
            width=self.width,
            query=self.query,
            target=self.target,
            rows=self.row_code,
            sum_width=self.value_width,
            key_line=None if self.packs_keys else self.key.column,
            value_line=self.value.row,
            memory=self.host.memory,
        )
        with f.loop(*stack) as each:
            indices = indices_of(f, each.index, self.batch)
            at = _Operands(
                query=self.query.at(f, query, indices),
                key=self.key.at(f, key, indices),
                value=self.value.at(f, value, indices),
                target=self.target.at(f, target, indices),
                masks=[
                    mask.matrix.at(f, base, indices, mask.size) for mask, base in zip(self.masks, masks, strict=True)
                ],
            )
            _Writer(self, f, functions, scratch, at, tiles).emit()
        f.finish()


def choose_rows(
    host: Host, queries: int, keys: int, width: int, *, is_causal: bool = False, is_open: bool = False
) -> tuple[int, tuple[int, int]]:
    """Queries of a tile, and vectors of a panel of keys and of values.

    Args:
        is_open: whether sizes are told when the code runs: a few tiles are tried then, and one panel.
    """
    # The fewer queries a causal tile has, the fewer keys it meets that only its last ones see.
    columns = min(queries, host.lanes) if is_causal else queries
    tile = rank_tiles(host, 1, columns, TYPICAL_KEYS if is_open else keys, width, is_open=is_open)[0]
    return tile.columns, (tile.vectors, max(1, (host.registers - host.registers_beside) // (tile.columns + 1)))


@dataclass(frozen=True, slots=True)
class _Scratch:
    """Memory of a thread: packed keys, the scores of a tile, what is summed, what is known of rows and tiles."""

    keys: Value
    scores: Value
    sums: Value
    states: Value
    seen: Value


@dataclass(frozen=True, slots=True)
class _Operands:
    """Addresses of matrices, of a stack or of one."""

    query: Value
    key: Value
    value: Value
    target: Value
    masks: list[Value]


@dataclass(frozen=True, slots=True)
class _Writer:
    """The code for some tiles of queries of one of a stack.

    Args:
        at: its matrices.
        tiles: from the first to before the last.
    """

    kernel: Attention
    f: Function
    functions: TileFunctions
    scratch: _Scratch
    at: _Operands
    tiles: tuple[Index, Index]

    def emit(self) -> None:
        """Block after block of keys."""
        f, kernel = self.f, self.kernel
        if kernel.sight is not None:
            self._look(kernel.sight)
        if not kernel.has_blocks:
            self._block(0, kernel.keys)
            return
        self._clear()
        if kernel.is_padded:
            with f.loop(0, kernel.keys, kernel.block) as at:
                self._seen_block(at.index, f.minimum(f.sub(kernel.keys, at.index), kernel.block))
            self._finish()
            return
        whole, rest = divmod(kernel.keys, kernel.block)
        with f.loop(0, whole) as block:
            self._seen_block(f.mul(block.index, kernel.block), kernel.block)
        if rest:
            self._seen_block(whole * kernel.block, rest)
        self._finish()

    def _first_query(self, tile: Index) -> Index:
        """Of a tile; the last is shifted back."""
        kernel = self.kernel
        if kernel.grid.sizes[0] == 1:
            return 0
        return self.f.minimum(self.f.mul(tile, kernel.rows), kernel.queries - kernel.rows)

    def _seen(self, tile: Index, first_key: Index, count: Index) -> Index:
        """How many keys of a block the last query of a tile sees."""
        f, kernel = self.f, self.kernel
        seen: Index
        if kernel.is_causal:
            seen = f.add(self._first_query(tile), kernel.rows)
        elif kernel.sight is not None:
            seen = f.load("i64", f.at(self.scratch.seen, f.sub(tile, self.tiles[0]), 8), 8)
        else:
            return count
        return f.maximum(f.minimum(f.sub(seen, first_key), count), 0)

    def _look(self, sight: Sight) -> None:
        """Keep how many keys every tile sees."""
        f, kernel = self.f, self.kernel
        name = f"{kernel.name}_sight"
        if name not in f.module.functions:
            sight.emit(f.module, name)
        with f.loop(*self.tiles) as tile:
            row = self._first_query(tile.index)
            query = f.at(self.at.query, f.mul(row, kernel.query.row))
            seen = f.call(name, [query, self.at.key, self.at.value, self._mask(0, row, 0)], "i64")
            f.store(seen, f.at(self.scratch.seen, f.sub(tile.index, self.tiles[0]), 8), 8)

    def _seen_block(self, first_key: Index, count: Index) -> None:
        """A block of keys, if any query sees it."""
        if not self.kernel.is_causal:
            self._block(first_key, count)
            return
        seen = self._seen(self.f.sub(self.tiles[1], 1), first_key, count)
        if isinstance(seen, int):
            if seen:
                self._block(first_key, count)
            return
        with self.f.when(self.f.less(0, seen)):
            self._block(first_key, count)

    def _block(self, first_key: Index, count: Index) -> None:
        """All tiles with a block of keys."""
        f, kernel, scratch = self.f, self.kernel, self.scratch
        packing = kernel.packed_keys(count if isinstance(count, int) else kernel.key_width)
        keys = f.at(self.at.key, f.mul(first_key, kernel.key.row))
        if kernel.packs_keys:
            seen = self._seen(f.sub(self.tiles[1], 1), first_key, count) if kernel.is_causal else count
            packing.emit(f, keys, scratch.keys, seen)
            keys = scratch.keys
        values = f.at(self.at.value, f.mul(first_key, kernel.value.row))
        with f.loop(*self.tiles) as tile:
            seen = self._seen(tile.index, first_key, count)
            if kernel.sight is not None and isinstance(
                count, int
            ):  # mostly all of them, for which there is code that knows how many
                is_all = f.compare("eq", as_value(seen), as_value(count))
                with f.when(is_all):
                    self._tile(tile.index, first_key, count, packing, (keys, values))
                with f.unless(is_all):
                    self._some(tile.index, first_key, seen, packing, (keys, values))
            else:
                self._some(tile.index, first_key, seen, packing, (keys, values))

    def _some(self, tile: Index, first_key: Index, seen: Index, packing: Packing, block: tuple[Value, Value]) -> None:
        """A tile of queries with the keys of a block that it sees, if there are any."""
        if isinstance(seen, int) or not self.kernel.has_blocks:
            self._tile(tile, first_key, seen, packing, block)
            return
        with self.f.when(self.f.less(0, seen)):
            self._tile(tile, first_key, seen, packing, block)

    def _tile(self, tile: Index, first_key: Index, seen: Index, packing: Packing, block: tuple[Value, Value]) -> None:
        """A tile of queries with the keys of a block that its last query sees; ``block`` is its keys and values."""
        f, kernel, scratch = self.f, self.kernel, self.scratch
        row = self._first_query(tile)
        query = f.at(self.at.query, f.mul(row, kernel.query.row))
        wanted, _ = f.divmod(f.add(seen, kernel.key_width - 1), kernel.key_width)
        step = packing.panel_floats if kernel.packs_keys else kernel.key_width

        def score(panel: Panel, number: Index) -> None:
            target = f.at(scratch.scores, f.mul(number, kernel.key_width))
            f.call(self.functions.scores(panel), [query, f.at(block[0], f.mul(number, step)), target])

        if kernel.is_padded:
            with f.loop(0, wanted) as each:
                score(packing.panels[0], each.index)
        else:
            each_of(f, wanted, packing.panels, score)
        local = f.mul(f.sub(tile, self.tiles[0]), kernel.rows) if kernel.has_blocks else 0
        states = f.at(scratch.states, f.mul(local, RowCode.STATE))
        masks = [self._mask(k, row, first_key) for k in range(len(kernel.masks))]
        arguments = [scratch.scores, states, *masks, as_value(seen), as_value(f.sub(row, first_key))]
        f.call(self.functions.weights(seen), arguments)
        target = f.at(self.at.target, f.mul(row, kernel.target.row))
        sums = f.at(scratch.sums, f.mul(local, kernel.value_width))

        def add(panel: Panel, number: Index) -> None:
            first = f.mul(number, width_of(kernel.value_panels[0]))
            at = f.at(sums, first) if kernel.has_blocks else f.at(target, f.mul(first, kernel.target.column))
            arguments = [scratch.scores, f.at(block[1], first), states, at, as_value(seen)]
            f.call(self.functions.values(panel, seen), arguments)

        each_of(f, len(kernel.value_panels), kernel.value_panels, add)

    def _mask(self, index: int, row: Index, first_key: Index) -> Value:
        f, mask = self.f, self.kernel.masks[index]
        offset = f.add(f.mul(row, mask.matrix.row), f.mul(first_key, mask.matrix.column))
        return f.at(self.at.masks[index], offset, mask.size)

    def _clear(self) -> None:
        f, kernel, scratch = self.f, self.kernel, self.scratch
        rows = f.mul(f.sub(self.tiles[1], self.tiles[0]), kernel.rows)
        with f.loop(0, rows) as row:
            kernel.row_code.clear(f, f.at(scratch.states, f.mul(row.index, RowCode.STATE)))
        with f.loop(0, f.mul(rows, kernel.value_width)) as each:
            f.store(constant(0.0, "float"), f.at(scratch.sums, each.index))

    def _finish(self) -> None:
        """The sums of all blocks by those of the exponentials, to the target."""
        f, kernel, scratch = self.f, self.kernel, self.scratch
        with f.loop(*self.tiles) as tile, f.loop(0, kernel.rows) as row:
            local = f.add(f.mul(f.sub(tile.index, self.tiles[0]), kernel.rows), row.index)
            state = f.at(scratch.states, f.mul(local, RowCode.STATE))
            share = kernel.row_code.share(f, f.load("float", f.at(state, 1)))
            line = f.at(scratch.sums, f.mul(local, kernel.value_width))
            target = f.at(self.at.target, f.mul(f.add(self._first_query(tile.index), row.index), kernel.target.row))

            def store(panel: Panel, number: Index) -> None:
                first = f.mul(number, width_of(kernel.value_panels[0]))
                sums = load_panel(f, f.at(line, first), panel, is_padded=True)
                self.functions.store(f, panel, sums, share, f.at(target, f.mul(first, kernel.target.column)))

            each_of(f, len(kernel.value_panels), kernel.value_panels, store)
