"""Attention: softmax(query @ key.T * scale + masks) @ value, in blocks of queries and blocks of keys.

Only the scores of one tile of queries with one block of keys are in memory, on the thread's stack. With several blocks,
the running sums are rescaled whenever a larger score appears (online softmax: Milakov and Gimelshein 2018, Dao et al.
2022). Every chunk packs a row-major key into columns; for many queries the key should be column-major. The last tile is
shifted back to end with the last query, and has its own sums.

A query whose keys are all masked gives zeros, or NaN on request. Keys that no query of a tile attends to are skipped:
the future in causal attention, and keys at either end that a mask excludes.

Arguments: query, key, value, target, masks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.compiler.codegen.ir import Function, Index, Module, Value, as_value, constant
from engine.compiler.kernels.attention.layout import Layout
from engine.compiler.kernels.attention.mask_range import MaskRange, is_finite, max_abs
from engine.compiler.kernels.attention.rows import RowCode
from engine.compiler.kernels.attention.tiles import TileFunctions
from engine.compiler.kernels.channels import Panel, load_panel, width_of
from engine.compiler.kernels.kernel import start
from engine.compiler.kernels.products.matrix import indices_of
from engine.compiler.kernels.products.packing import Packing, for_each_panel


@dataclass(frozen=True, slots=True)
class Scratch:
    """Addresses in a thread's own memory.

    Attributes:
        queries: of one tile, as words.
        keys, values: those of a block, packed.
        scores: of one tile.
        sums: weighted sums of values of all tiles; only with several blocks of keys.
        states: maximum and sum of exponentials of every query.
        key_range: first key and end of every tile; only with mask range pruning.
    """

    queries: Value
    keys: Value
    values: Value
    scores: Value
    sums: Value
    states: Value
    key_range: Value


@dataclass(frozen=True, slots=True)
class Operands:
    """Addresses of the operands of one attention of the batch."""

    query: Value
    key: Value
    value: Value
    target: Value
    masks: list[Value]


@dataclass(frozen=True, slots=True)
class Block:
    """Keys and values of a block: their addresses, and how they are packed if they are."""

    keys: Value
    values: Value
    key_packing: Packing
    value_packing: Packing


@dataclass(frozen=True, slots=True)
class Writer:
    """Code for a range of query tiles of one attention of the batch.

    Args:
        at: addresses of its operands.
        tiles: range of tiles.
        forced_keys: number of keys computed even if they come after a query (causal, non-finite values).
    """

    kernel: Layout
    f: Function
    functions: TileFunctions
    scratch: Scratch
    at: Operands
    tiles: tuple[Index, Index]
    forced_keys: Index = 0

    def emit(self) -> None:
        """Emit the loops over blocks of keys."""
        if self.kernel.mask_range is not None:
            self._find_ranges(self.kernel.mask_range)
        if self.kernel.is_causal:
            replace(self, forced_keys=self._forced_keys())._emit_blocks()
        else:
            self._emit_blocks()

    def _emit_blocks(self) -> None:
        f, kernel = self.f, self.kernel
        if not kernel.has_blocks:
            self._block(0, kernel.keys)
            return
        self._clear()
        if kernel.has_dynamic_keys:
            with f.loop(0, kernel.keys, kernel.block) as at:
                self._block_if_needed(at.index, f.minimum(f.sub(kernel.keys, at.index), kernel.block))
            self._finish()
            return
        whole, rest = divmod(kernel.keys, kernel.block)
        with f.loop(0, whole) as block:
            self._block_if_needed(f.mul(block.index, kernel.block), kernel.block)
        if rest:
            self._block_if_needed(whole * kernel.block, rest)
        self._finish()

    def _first_query(self, tile: Index) -> Index:
        """Emit the first query of a tile; the last tile is shifted back to end with the last query."""
        kernel = self.kernel
        if kernel.grid.sizes[0] == 1:
            return 0
        return self.f.minimum(self.f.mul(tile, kernel.rows), kernel.queries - kernel.rows)

    def _forced_keys(self) -> Index:
        """Emit the number of masked keys to compute: all if a later value is not finite, because 0 times it is NaN."""
        f, kernel = self.f, self.kernel
        first = f.add(self._first_query(self.tiles[0]), kernel.rows)
        unseen = f.maximum(f.sub(kernel.keys, first), 0)
        if isinstance(unseen, int) and not unseen:
            return 0
        values = f.at(self.at.value, f.mul(first, kernel.value.row))
        highest = max_abs(f, values, kernel.value.row, unseen, kernel.values, lanes=kernel.host.lanes)
        return f.select(is_finite(f, highest), as_value(0), as_value(kernel.keys))

    def _range_in_block(self, tile: Index, first_key: Index, count: Index) -> tuple[Index, Index]:
        """Emit the range of keys of a block that a tile attends to, its start rounded down to a panel."""
        f, kernel = self.f, self.kernel
        if kernel.is_causal:
            end = f.maximum(f.add(self._first_query(tile), kernel.rows), self.forced_keys)
            return 0, self._within(end, first_key, count)
        if kernel.mask_range is None:
            return 0, count
        span = self._span(tile)
        begin, end = (
            self._within(f.load("i64", f.at(span, end, 8), 8), first_key, count) for end in range(MaskRange.SPAN)
        )
        panel, _ = f.divmod(begin, kernel.key_width)
        return f.mul(panel, kernel.key_width), end

    def _within(self, key: Index, first_key: Index, count: Index) -> Index:
        """Emit a key relative to a block, clamped to the block."""
        f = self.f
        return f.maximum(f.minimum(f.sub(key, first_key), count), 0)

    def _span(self, tile: Index) -> Value:
        """Return the address of a tile's range of keys."""
        f = self.f
        return f.at(self.scratch.key_range, f.mul(f.sub(tile, self.tiles[0]), MaskRange.SPAN), 8)

    def _find_ranges(self, mask_range: MaskRange) -> None:
        """Store the range of keys of every tile, from its masks."""
        f, kernel = self.f, self.kernel
        name = f"{kernel.name}_mask_range"
        if name not in f.module.functions:
            mask_range.emit(f.module, name)
        with f.loop(*self.tiles) as tile:
            row = self._first_query(tile.index)
            query = f.at(self.at.query, f.mul(row, kernel.query.row))
            masks = [self._mask(k, row, 0) for k in range(len(kernel.masks))]
            f.call(name, [query, self.at.key, self.at.value, self._span(tile.index), *masks])

    def _block_if_needed(self, first_key: Index, count: Index) -> None:
        """Emit a block of keys, skipped if no query attends to it."""
        if not self.kernel.is_causal:
            self._block(first_key, count)
            return
        _, key_range = self._range_in_block(self.f.sub(self.tiles[1], 1), first_key, count)
        if isinstance(key_range, int):
            if key_range:
                self._block(first_key, count)
            return
        with self.f.when(self.f.less(0, key_range)):
            self._block(first_key, count)

    def _block(self, first_key: Index, count: Index) -> None:
        """Emit all tiles with a block of keys."""
        f, kernel, scratch = self.f, self.kernel, self.scratch
        most = count if isinstance(count, int) else kernel.key_width
        packing, value_packing = kernel.packed_keys(most), kernel.packed_values(most)
        keys = f.at(self.at.key, f.mul(first_key, kernel.key.row), kernel.element_bytes)
        if kernel.packs_keys:
            _, needed = (
                self._range_in_block(f.sub(self.tiles[1], 1), first_key, count) if kernel.is_causal else (0, count)
            )
            packing.emit(f, keys, scratch.keys, needed)
            keys = scratch.keys
        values = f.at(self.at.value, f.mul(first_key, kernel.value.row), kernel.element_bytes)
        if kernel.packs_values:
            value_packing.emit(f, values, scratch.values, kernel.values)
            values = scratch.values
        block = Block(keys, values, packing, value_packing)
        with f.loop(*self.tiles) as tile:
            key_range = self._range_in_block(tile.index, first_key, count)
            if kernel.mask_range is not None and isinstance(count, int):
                # Mostly a tile attends to all keys: code for a constant number of keys handles this case.
                is_all = f.compare("eq", as_value(f.sub(key_range[1], key_range[0])), as_value(count))
                with f.when(is_all):
                    self._tile(tile.index, first_key, (0, count), block)
                with f.unless(is_all):
                    self._tile_if_needed(tile.index, first_key, key_range, block)
            else:
                self._tile_if_needed(tile.index, first_key, key_range, block)

    def _tile_if_needed(self, tile: Index, first_key: Index, key_range: tuple[Index, Index], block: Block) -> None:
        """Emit a tile of queries with its range of keys of a block, skipped if the range is empty."""
        begin, end = key_range
        if isinstance(end, int) or not self.kernel.has_blocks:
            self._tile(tile, first_key, key_range, block)
            return
        with self.f.when(self.f.less(begin, end)):
            self._tile(tile, first_key, key_range, block)

    def _tile(self, tile: Index, first_key: Index, key_range: tuple[Index, Index], block: Block) -> None:
        """Emit a tile of queries with some keys of a block.

        Args:
            key_range: range of keys, from a panel's first key to behind the last one attended to.
        """
        f, kernel, scratch = self.f, self.kernel, self.scratch
        row, (begin, end) = self._first_query(tile), key_range
        query, packing = f.at(self.at.query, f.mul(row, kernel.query.row)), block.key_packing
        if kernel.packs_values:
            f.call(self.functions.rounded(), [query, scratch.queries])
            query = scratch.queries
        skipped, _ = f.divmod(begin, kernel.key_width)
        wanted, _ = f.divmod(f.add(end, kernel.key_width - 1), kernel.key_width)
        step = packing.panel_floats if kernel.packs_keys else kernel.key_width

        def score(panel: Panel, number: Index) -> None:
            target = f.at(scratch.scores, f.mul(f.sub(number, skipped), kernel.key_width))
            f.call(self.functions.scores(panel), [query, f.at(block.keys, f.mul(number, step)), target])

        if kernel.by_dots:
            f.call(self.functions.dots(kernel.key.row), [query, block.keys, scratch.scores, as_value(end)])
        elif kernel.is_padded:
            with f.loop(skipped, wanted) as each:
                score(packing.panels[0], each.index)
        else:
            for_each_panel(f, (skipped, wanted), packing.panels, score)
        local = f.mul(f.sub(tile, self.tiles[0]), kernel.rows) if kernel.has_blocks else 0
        states = f.at(scratch.states, f.mul(local, RowCode.STATE))
        first_key, count = f.add(first_key, begin), f.sub(end, begin)
        masks = [self._mask(k, row, first_key) for k in range(len(kernel.masks))]
        arguments = [scratch.scores, states, *masks, as_value(count), as_value(f.sub(row, first_key))]
        f.call(self.functions.weights(count), arguments)
        target = f.at(self.at.target, f.mul(row, kernel.target.row))
        sums = f.at(scratch.sums, f.mul(local, kernel.value_width))

        def add(panel: Panel, number: Index) -> None:
            first = f.mul(number, width_of(kernel.value_panels[0]))
            at = f.at(sums, first) if kernel.has_blocks else f.at(target, f.mul(first, kernel.target.column))
            arguments = [scratch.scores, self._values(block, begin, panel, number), states, at, as_value(count)]
            f.call(self.functions.values(panel, count), arguments)

        for_each_panel(f, (0, len(kernel.value_panels)), kernel.value_panels, add)

    def _values(self, block: Block, key: Index, panel: Panel, number: Index) -> Value:
        """Emit the address of a panel of the values from a key on, the first of a word."""
        f, packing = self.f, block.value_packing
        if not self.kernel.packs_values:
            first, size = f.mul(number, width_of(self.kernel.value_panels[0])), self.kernel.element_bytes
            return f.at(f.at(block.values, f.mul(key, self.kernel.value.row), size), first, size)
        word, _ = f.divmod(key, packing.numbers)
        return f.at(f.at(block.values, f.mul(number, packing.panel_floats)), f.mul(word, width_of(panel)))

    def _mask(self, index: int, row: Index, first_key: Index) -> Value:
        """Emit the address of a mask's element for a query and a key."""
        f, mask = self.f, self.kernel.masks[index]
        offset = f.add(f.mul(row, mask.matrix.row), f.mul(first_key, mask.matrix.column))
        return f.at(self.at.masks[index], offset, mask.size)

    def _clear(self) -> None:
        """Zero the sums and initialise every query's state."""
        f, kernel, scratch = self.f, self.kernel, self.scratch
        rows = f.mul(f.sub(self.tiles[1], self.tiles[0]), kernel.rows)
        with f.loop(0, rows) as row:
            kernel.row_code.clear(f, f.at(scratch.states, f.mul(row.index, RowCode.STATE)))
        with f.loop(0, f.mul(rows, kernel.value_width)) as each:
            f.store(constant(0.0, "float"), f.at(scratch.sums, each.index))

    def _finish(self) -> None:
        """Divide the sums by those of the exponentials and store them to the target."""
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

            for_each_panel(f, (0, len(kernel.value_panels)), kernel.value_panels, store)


@dataclass(frozen=True, kw_only=True)
class Attention(Layout):
    """Attention kernel; ``Layout`` chooses its blocking."""

    kind = "attention"

    def emit(self, module: Module) -> None:
        f, (query, key, value, target, *masks), chunk = start(module, self, 4 + len(self.masks))
        tiles, stack = self.grid.ranges(f, chunk)
        scratch, functions = self._scratch(f), self._functions(module)
        with f.loop(*stack) as each:
            indices = indices_of(f, each.index, self.batch)
            at = Operands(
                query=self.query.at(f, query, indices),
                key=self.key.at(f, key, indices, self.element_bytes),
                value=self.value.at(f, value, indices, self.element_bytes),
                target=self.target.at(f, target, indices),
                masks=[
                    mask.matrix.at(f, base, indices, mask.size) for mask, base in zip(self.masks, masks, strict=True)
                ],
            )
            Writer(self, f, functions, scratch, at, tiles).emit()
        f.finish()

    def _scratch(self, f: Function) -> Scratch:
        most = self.most_tiles if self.has_dynamic_keys else self.grid.block[0]
        room = most * self.rows if self.has_blocks else self.rows
        states = f.reserve(room * RowCode.STATE)
        words = self.packed_values(self.block).floats if self.packs_values else 0
        return Scratch(
            queries=f.reserve(self.rows * (self.width + self.host.lanes)) if words else states,
            values=f.reserve(words) if words else states,
            keys=f.reserve(self.packed_keys(self.block).floats) if self.packs_keys else states,
            scores=f.reserve(self.rows * self.row_code.pitch),
            sums=f.reserve(room * self.value_width) if self.has_blocks else states,
            states=states,
            key_range=states if self.mask_range is None else f.reserve(most * MaskRange.SPAN, 8),
        )

    def _functions(self, module: Module) -> TileFunctions:
        return TileFunctions(
            module=module,
            name=self.name,
            width=self.width,
            query=self.query,
            target=self.target,
            rows=self.row_code,
            sum_width=self.value_width,
            key_line=None if self.packs_keys else self.key.column,
            value_line=None if self.packs_values else self.value.row,
            dtype=self.dtype,
        )
