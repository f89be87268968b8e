"""Graph optimisations that run before a graph is compiled: each a function from a built graph to a new source.

graph, reports = optimise(graph)
graph, reports = optimise(graph, off=["expression_fusion"])
"""

from __future__ import annotations

from engine.passes.optimiser import PASSES, Pass, optimise
from engine.passes.report import PassReport

__all__ = ["PASSES", "Pass", "PassReport", "optimise"]
