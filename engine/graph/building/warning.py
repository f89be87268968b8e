"""Where a graph and its file disagree, and what a strict build makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from engine.errors import GraphError
from engine.graph.building.inference import Mismatch
from engine.graph.building.losses import SuspectedLoss

GraphWarning: TypeAlias = Mismatch | SuspectedLoss


def refusal(warnings: Sequence[GraphWarning]) -> GraphError:
    """The first of some warnings as an error that says how many there are."""
    error, others = warnings[0].as_error(), len(warnings) - 1
    if others:
        error.problem += f" (and {others} more like it)"
    return error
