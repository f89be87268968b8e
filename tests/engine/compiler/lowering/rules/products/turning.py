"""Which steps there are around attention depends on the machine: the fewer queries a tile has, the more tiles.

In tests that is what is usual of its kind, not what was measured.
"""

from __future__ import annotations

from engine.compiler.codegen.host import detect
from engine.compiler.kernels.attention.layout import choose_rows


def turned(queries: int, keys: int, width: int) -> list[str]:
    """The step that lays keys out in columns: there is one where several tiles of queries share them."""
    rows, _ = choose_rows(detect(), queries, keys, width)
    return ["transpose"] if rows < queries else []
