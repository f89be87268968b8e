"""Memory of mapped model files, given back once their weights are packed or hashed.

The pages of a mapped file count as the process's own as long as it has read them. They are clean: the system may drop
them at once, and whoever reads a weight again finds it in the file.
"""

from __future__ import annotations

import mmap

from engine.graph import RuntimeGraph
from engine.tensor import Array


def release(graph: RuntimeGraph) -> None:
    """Give back the pages of the files that the graph's weights are mapped from."""
    if not hasattr(mmap, "MADV_DONTNEED"):
        return
    attributes = (each.data for op in graph.operators for each in op.attributes.values())
    for file in {id(file): file for data in attributes if (file := _file_of(data)) is not None}.values():
        file.madvise(mmap.MADV_DONTNEED)


def _file_of(data: Array) -> mmap.mmap | None:
    """The mapped file an array is a view of."""
    owner: object = data
    while owner is not None and not isinstance(owner, mmap.mmap):
        owner = owner.obj if isinstance(owner, memoryview) else getattr(owner, "base", None)
    return owner
