"""Operators whose outputs nobody uses."""

from __future__ import annotations

from engine.graph import RuntimeGraph
from engine.passes.support.rewriting import Rewriter
from engine.pnnx import Graph
from engine.stopping import wanted_quick


def dead_operators(graph: RuntimeGraph) -> Graph:
    """Take out what no output of the graph depends on; the graph's inputs stay, used or not."""
    rewriter = Rewriter(graph)
    needed: set[str] = set()
    for op in wanted_quick(reversed(graph.operators)):
        is_boundary = op.layer is None
        if is_boundary or any(operand.name in needed for operand in op.outputs):
            needed.update(operand.name for operand in op.inputs)
        else:
            rewriter.drop(op)
    return rewriter.result()
