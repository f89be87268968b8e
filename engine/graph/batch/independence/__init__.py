"""Proof that the items of a batch do not influence each other.

Abstract interpretation of a built graph: ``values`` has what is said of an operand, ``use`` what a rule sees of an
operator, ``rules`` a function for each family of operators, ``proof`` follows the batch from the inputs to the outputs.
An operator without a rule ends the proof as soon as one of its operands depends on the items.
"""

from __future__ import annotations

from engine.graph.batch.independence.proof import Proof, prove

__all__ = ["Proof", "prove"]
