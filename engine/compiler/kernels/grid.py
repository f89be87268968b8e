"""Two-dimensional work cut into blocks, one chunk each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from engine.compiler.codegen.ir import Function, Index, Sizes
from engine.ir.dims import hint, is_symbolic, largest, smallest

Range: TypeAlias = tuple[Index, Index]
# A block of a symbolic size may grow to this many times the block chosen for the hint: reused data stays in the cache.
MOST_GROWTH: Final = 2


def block_of_symbolic(size: int, chosen: int) -> int:
    """Return the block of a size that may be symbolic.

    Args:
        chosen: block for the hint of the size.
    """
    if not is_symbolic(size):
        return chosen
    count = -(-hint(size) // chosen)
    return largest(1, smallest(-(-size // count), MOST_GROWTH * chosen))


@dataclass(frozen=True, slots=True)
class Grid:
    """Two-dimensional work in blocks; consecutive chunks run down a column of blocks, or along a row.

    Args:
        sizes: rows and columns.
        block: rows and columns of one chunk.
        is_by_rows: whether consecutive chunks run along a row of blocks.
    """

    sizes: tuple[int, int]
    block: tuple[int, int]
    is_by_rows: bool = False

    @property
    def tiling(self) -> tuple[int, int]:
        """Return the number of blocks down and across."""
        return -(-self.sizes[0] // self.block[0]), -(-self.sizes[1] // self.block[1])

    @property
    def chunks(self) -> int:
        """Return the number of blocks."""
        return self.tiling[0] * self.tiling[1]

    def dynamic(self, sizes: Sizes) -> Grid:
        """Return this grid with dynamic row count and dynamic block sizes."""
        rows, columns = self.sizes
        block = sizes.dynamic_count(self.block[0]), sizes.dynamic_count(self.block[1])
        return Grid((sizes.dynamic_count(rows), columns), block, self.is_by_rows)

    def evened(self) -> Grid:
        """Return a grid of no more blocks that are as equal as possible, so that threads finish together."""
        rows, columns = (
            -(-size // -(-size // block)) for size, block in zip(*hint((self.sizes, self.block)), strict=True)
        )
        return Grid(self.sizes, (rows, columns), self.is_by_rows)

    def cut(self, wanted: int, work: float, least: float, *, rows_first: bool = False) -> Grid:
        """Return a grid of smaller blocks, halved along one dimension and then the other until there are enough.

        Symbolic sizes are cut into as many blocks as their hints, unless blocks would get much larger.

        Args:
            wanted: number of blocks to reach.
            work: cost of one element, in any unit.
            least: minimum work of a block.
            rows_first: whether to halve the rows first and number chunks row by row, so that a thread with consecutive
                chunks keeps its own rows.
        """
        (down, across), (rows, columns) = hint((self.sizes, self.block))

        def is_enough() -> bool:
            return -(-down // rows) * -(-across // columns) >= wanted or rows * columns * work <= least

        for is_down in (True, False) if rows_first else (False, True):
            while (rows if is_down else columns) > 1 and not is_enough():
                rows, columns = (-(-rows // 2), columns) if is_down else (rows, -(-columns // 2))
        block = block_of_symbolic(self.sizes[0], rows), block_of_symbolic(self.sizes[1], columns)
        return Grid(self.sizes, block, rows_first)

    def ranges(self, f: Function, chunk: Index) -> tuple[Range, Range]:
        """Emit the half-open ranges of rows and columns of a chunk."""
        if self.is_by_rows:
            down, across = f.divmod(chunk, self.tiling[1])
        else:
            across, down = f.divmod(chunk, self.tiling[0])
        row, column = f.mul(down, self.block[0]), f.mul(across, self.block[1])
        stops = (
            f.minimum(f.add(row, self.block[0]), self.sizes[0]),
            f.minimum(f.add(column, self.block[1]), self.sizes[1]),
        )
        return (row, stops[0]), (column, stops[1])
