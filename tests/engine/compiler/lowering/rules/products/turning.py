"""Which steps there are around attention depends on the machine: the fewer queries a tile has, the more tiles."""

from __future__ import annotations

from engine.compiler.kernels.attention.layout import choose_rows
from engine.compiler.measuring.record import this_host
from engine.options import Options


def turned(queries: int, keys: int, width: int) -> list[str]:
    """The step that lays keys out in columns: there is one where several tiles of queries share them."""
    rows, _ = choose_rows(this_host(Options(cache=None)), queries, keys, width)
    return ["transpose"] if rows < queries else []
