"""The running graph: operators joined by operands, their order, shapes and plan, and the reference executor.

building (linked, bound, inferred) -> planning (order, plan) -> running (the reference); batch generalises it to any
batch size, surgery changes it, description and footprint describe it.
"""

from __future__ import annotations

from engine.graph.building.export_diagnosis import ExportFinding
from engine.graph.building.mismatches import GraphWarning, Mismatch
from engine.graph.operand import RuntimeOperand
from engine.graph.operator import RuntimeOperator
from engine.graph.port import Port
from engine.graph.running.reference import execute
from engine.graph.runtime_graph import GraphState, RuntimeGraph

__all__ = [
    "GraphState",
    "GraphWarning",
    "Mismatch",
    "Port",
    "RuntimeGraph",
    "RuntimeOperand",
    "RuntimeOperator",
    "ExportFinding",
    "execute",
]
