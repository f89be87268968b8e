"""Graph optimisations that run before a graph is compiled: each a function from a built graph to a new source.

graph, reports = optimise(graph)
graph, reports = optimise(graph, off=["expression_fusion"])

``optimiser`` has their order; support has their common parts.
"""

from __future__ import annotations

from engine.passes.optimiser import (
    ACTIVATIONS,
    ATTENTION,
    JOINS,
    LOWERING_PASSES,
    PASSES,
    RESIDUALS,
    WAVEFRONT,
    Pass,
    PassReport,
    optimise,
)

__all__ = [
    "ACTIVATIONS",
    "ATTENTION",
    "JOINS",
    "LOWERING_PASSES",
    "PASSES",
    "RESIDUALS",
    "WAVEFRONT",
    "Pass",
    "PassReport",
    "optimise",
]
