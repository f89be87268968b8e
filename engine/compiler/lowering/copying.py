"""Which copies are transpositions."""

from __future__ import annotations

from collections.abc import Sequence

from engine.compiler.codegen.host import Host
from engine.compiler.kernels.map import merge_loops
from engine.compiler.kernels.transpose import Repeat, Transpose


def make_transpose(shape: Sequence[int], source: Sequence[int], target: Sequence[int], host: Host) -> Transpose | None:
    """The transposition a copy is; None where one dimension is contiguous on both sides, or none is on one of them."""
    loops = merge_loops(shape, [target, source])
    rows = [loop for loop in loops if loop[1][0] == 1]
    columns = [loop for loop in loops if loop[1][1] == 1]
    if len(rows) != 1 or len(columns) != 1 or rows == columns:
        return None
    (row, (_, source_row)), (column, (target_column, _)) = rows[0], columns[0]
    rest = [loop for loop in loops if loop not in (rows[0], columns[0])]
    if source_row < 1 or target_column < 1 or any(min(strides) < 0 for _, strides in rest):
        return None
    return Transpose(
        repeats=tuple(Repeat(size, strides[1], strides[0]) for size, strides in rest),
        rows=row,
        columns=column,
        source_row=source_row,
        target_column=target_column,
        host=host,
    )
