"""Memory of weights that lie in a file or are shared, given back once they are packed or hashed.

Their pages count as the process's own as long as it has read them. The system may drop them at once, and whoever reads
a weight again finds it where it was. Weights that were copied into memory are kept, but for the aligned copies that
layers have made of them for the reference.
"""

from __future__ import annotations

from engine.compiler.codegen.leftovers import give_back_freed
from engine.graph import RuntimeGraph
from engine.memory import blocks


def release(graph: RuntimeGraph) -> None:
    """Give back the pages of the blocks that the graph's weights are part of."""
    has_freed = False
    for op in graph.operators:
        if op.layer is not None:
            has_freed |= op.layer.forget_copies()
        for attribute in op.attributes.values():
            blocks.release(attribute.data)
    if has_freed:
        give_back_freed()
