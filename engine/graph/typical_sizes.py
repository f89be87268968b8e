"""Typical sizes of inputs with dynamic dimensions: code is compiled for them before the first request."""

from __future__ import annotations

from typing import Final

from engine.errors import EngineError, RunCancelledError
from engine.graph.port import Port
from engine.graph.runtime_graph import RuntimeGraph
from engine.tensor import TensorSpec

IMAGE_SIZE: Final = 224
LENGTHS: Final = 128, 12
"""Tokens or frames of a long and of a short input: kernels for long ones need some rows of a matrix."""
FACTORS: Final = (1, 8, 64)
"""Multiples of these sizes that are tried: the samples of a recording are more than its frames."""


def typical_specs(graph: RuntimeGraph, batch: int = 1, length: int = LENGTHS[0]) -> list[TensorSpec] | None:
    """Return input specs of typical sizes that the graph accepts; None if there are none.

    Args:
        batch: size of a dynamic first dimension.
        length: size of dynamic dimensions of other inputs than images.

    Raises:
        RunCancelledError: the caller cancelled.
    """
    for factor in FACTORS:
        sizes: dict[str, int] = {}
        found = [_typical(port, batch, factor * length, factor * IMAGE_SIZE, sizes) for port in graph.inputs]
        specs = [each for each in found if each is not None]
        if len(specs) < len(found):
            return None
        try:
            graph.infer(specs)
        except RunCancelledError:
            raise
        except EngineError:
            continue
        return specs
    return None


def _typical(port: Port, batch: int, length: int, pixels: int, sizes: dict[str, int]) -> TensorSpec | None:
    """Return the spec of an input with typical sizes; None if its rank is unknown.

    Args:
        sizes: receives the sizes of named dimensions; those of one name are equal.
    """
    if port.spec is None:
        return None
    shape = []
    for axis, size in enumerate(port.spec.shape):
        if size is None:
            typical = pixels if port.spec.rank == 4 else length
            size = batch if axis == 0 and port.spec.rank > 1 else typical
            name = port.size_names[axis] if axis < len(port.size_names) else None
            size = size if name is None else sizes.setdefault(name, size)
        shape.append(size)
    return TensorSpec(tuple(shape), port.spec.dtype)
