"""Proof that the items of a batch do not influence each other.

Abstract interpretation of a built graph: ``values`` defines the abstract values of operands, ``use`` an operator as
seen by a rule, ``rules`` a function for each family of operators, and ``proof`` follows the batch from the inputs to
the outputs. An operator without a rule ends the proof if one of its operands depends on the items.
"""

from __future__ import annotations

from engine.graph.batch.independence.proof import Proof, prove

__all__ = ["Proof", "prove"]
