"""Where a graph and its file disagree, and what a strict build makes of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeAlias

from engine.errors import GraphError
from engine.graph.building.inference import Mismatch, find_mismatches
from engine.graph.building.losses import SuspectedLoss, find_losses
from engine.graph.operand import RuntimeOperand

GraphWarning: TypeAlias = Mismatch | SuspectedLoss


def find_warnings(operands: Collection[RuntimeOperand], untyped: Collection[str]) -> tuple[GraphWarning, ...]:
    """Operands whose spec the file contradicts, then those that show a loss in another way.

    Args:
        operands: of the whole graph, their values inferred.
        untyped: names of the operands that the file announces with the dtype ``null``.
    """
    return (*find_mismatches(operands), *find_losses(operands, untyped))


def refusal(warnings: Sequence[GraphWarning]) -> GraphError:
    """The first of some warnings as an error that says how many there are."""
    error, others = warnings[0].as_error(), len(warnings) - 1
    if others:
        error.problem += f" (and {others} more like it)"
    return error
