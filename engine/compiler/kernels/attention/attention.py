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

from dataclasses import dataclass

from engine.compiler.codegen.ir import Function, Module
from engine.compiler.kernels.attention.layout import Layout
from engine.compiler.kernels.attention.mask_range import Sight
from engine.compiler.kernels.attention.rows import RowCode
from engine.compiler.kernels.attention.tiles import TileFunctions
from engine.compiler.kernels.attention.writer import Operands, Scratch, Writer
from engine.compiler.kernels.kernel import start
from engine.compiler.kernels.products.matrix import indices_of


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
                key=self.key.at(f, key, indices),
                value=self.value.at(f, value, indices),
                target=self.target.at(f, target, indices),
                masks=[
                    mask.matrix.at(f, base, indices, mask.size) for mask, base in zip(self.masks, masks, strict=True)
                ],
            )
            Writer(self, f, functions, scratch, at, tiles).emit()
        f.finish()

    def _scratch(self, f: Function) -> Scratch:
        most = self.most_tiles if self.is_padded else self.grid.block[0]
        room = most * self.rows if self.has_blocks else self.rows
        states = f.reserve(room * RowCode.STATE)
        return Scratch(
            keys=f.reserve(self.packed_keys(self.block).floats) if self.packs_keys else states,
            scores=f.reserve(self.rows * self.row_code.pitch),
            sums=f.reserve(room * self.value_width) if self.has_blocks else states,
            states=states,
            seen=states if self.sight is None else f.reserve(most * Sight.SPAN, 8),
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
            value_line=self.value.row,
            memory=self.host.memory,
        )
