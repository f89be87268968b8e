"""Work in two dimensions, cut into blocks that are a chunk each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from engine.compiler.codegen.ir import Function, Index, Sizes
from engine.ir.dims import hint, is_symbolic, largest, smallest

Range: TypeAlias = tuple[Index, Index]
# Times as large as the block that was chosen for the sizes at hand: what is read again still stays in a cache.
MOST_GROWTH: Final = 2


def block_of_symbolic(size: int, chosen: int) -> int:
    """Return the block of a size that may be symbolic.

    Args:
        chosen: the block for the size at hand.
    """
    if not is_symbolic(size):
        return chosen
    count = -(-hint(size) // chosen)
    return largest(1, smallest(-(-size // count), MOST_GROWTH * chosen))


@dataclass(frozen=True, slots=True)
class Grid:
    """Pieces of work in rows and columns; chunks of the same columns follow each other, or those of the same rows.

    Args:
        sizes: rows and columns.
        block: of them, what a chunk has.
        is_by_rows: whether those of the same rows follow each other.
    """

    sizes: tuple[int, int]
    block: tuple[int, int]
    is_by_rows: bool = False

    @property
    def tiling(self) -> tuple[int, int]:
        """Blocks down and across."""
        return -(-self.sizes[0] // self.block[0]), -(-self.sizes[1] // self.block[1])

    @property
    def chunks(self) -> int:
        """How many blocks there are."""
        return self.tiling[0] * self.tiling[1]

    def opened(self, sizes: Sizes) -> Grid:
        """The same with rows that are read when the code runs, and blocks of any size."""
        rows, columns = self.sizes
        block = sizes.count(self.block[0]), sizes.count(self.block[1])
        return Grid((sizes.count(rows), columns), block, self.is_by_rows)

    def evened(self) -> Grid:
        """The same in no more blocks, as equal as can be: threads that share them finish together."""
        rows, columns = (
            -(-size // -(-size // block)) for size, block in zip(*hint((self.sizes, self.block)), strict=True)
        )
        return Grid(self.sizes, (rows, columns), self.is_by_rows)

    def cut(self, wanted: int, work: float, least: float, *, rows_first: bool = False) -> Grid:
        """The same in smaller blocks, halved along one dimension and then the other, until they are enough or short.

        Symbolic sizes are cut into as many blocks as the sizes at hand, unless blocks would get much larger.

        Args:
            wanted: how many there should be.
            work: of a piece, in any unit.
            least: what a block should have.
            rows_first: whether to begin with the rows, and to go through chunks row by row: a thread that has
                consecutive ones has rows of its own.
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
        """The rows and the columns of a chunk, from the first to before the last."""
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
