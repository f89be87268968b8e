"""The running graph: operators joined by operands, their order, shapes and plan, and the reference executor."""

from __future__ import annotations

from engine.graph.inference import Mismatch
from engine.graph.losses import SuspectedLoss
from engine.graph.operand import RuntimeOperand
from engine.graph.operator import RuntimeOperator
from engine.graph.port import Port
from engine.graph.reference import execute
from engine.graph.runtime_graph import GraphState, RuntimeGraph
from engine.graph.warning import GraphWarning

__all__ = [
    "GraphState",
    "GraphWarning",
    "Mismatch",
    "Port",
    "RuntimeGraph",
    "RuntimeOperand",
    "RuntimeOperator",
    "SuspectedLoss",
    "execute",
]
