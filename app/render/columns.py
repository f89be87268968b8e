"""Tables for a terminal."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from app.wording import printable


def aligned(rows: Sequence[Sequence[str]], numbers: Collection[str] = ()) -> list[str]:
    """A line for each row, in columns of one width; texts of a model are printed with escapes, whatever they hold.

    Args:
        rows: the first one has the titles.
        numbers: titles of the columns that stand to the right.
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    columns = [_column(column, column[0] in numbers) for column in zip(*cells, strict=True)]
    return ["  ".join(row).rstrip() for row in zip(*columns, strict=True)]


def _column(cells: Sequence[str], is_right: bool) -> list[str]:
    width = max(map(len, cells))
    return [cell.rjust(width) if is_right else cell.ljust(width) for cell in cells]
