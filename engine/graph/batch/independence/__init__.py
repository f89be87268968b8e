"""Proof that the items of a batch do not influence each other.

Abstract interpretation of a built graph with a symbolic number of items: ``values`` defines the abstract values of
operands, ``operator`` an operator as seen by a rule, ``rules`` how each layer treats the axes of its operands, and
``proof`` follows the batch from the inputs to the outputs. Shapes say where the batch axis of a result is, so a rule
only checks that no slices of different items are combined. An operator without a rule ends the proof if one of its
operands depends on the items.
"""

from __future__ import annotations

from engine.graph.batch.independence.proof import Proof, prove

__all__ = ["Proof", "prove"]
