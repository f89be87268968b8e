"""How much may be unrolled: files say how often a loop runs, and bodies hold loops.

A turn that is unrolled costs some 0.8 ms of compiling for each of its operators, though its kernels share their code,
and saves 25 us and more in every run. Loops of more turns, or with larger bodies, are run turn by turn.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from engine.graph import RuntimeOperator
from engine.layers.onnx.control.control import Bodied

MOST_TURNS: Final = 64
"""Turns of a loop that are unrolled."""

MOST_ADDED: Final = 2_000
"""Operators that unrolling adds to a graph, those of bodies inside of bodies included."""

MOST_BYTES: Final = 32 << 20
"""Of weights in a body, times its turns: passes may make others of them."""

MOST_LOOKS: Final = 4 * MOST_ADDED
"""Operators of bodies looked at, turn by turn, to find out how often loops run."""


@dataclass(slots=True)
class Budget:
    """What is left.

    Args:
        operators: that may be added.
        looks: operators that may be looked at.
    """

    operators: int = MOST_ADDED
    looks: int = MOST_LOOKS

    def turns(self, body: Any) -> int:
        """How many turns of a body may be unrolled."""
        most = min(MOST_TURNS, self.operators // max(1, size_of(body.operators)))
        weights = sum(each.data.nbytes for op in body.operators for each in op.attributes.values())
        return min(most, MOST_BYTES // weights) if weights else most

    def look(self, body: Any) -> bool:
        """Whether there is leave to look at all operators of a body once more."""
        self.looks -= size_of(body.operators)
        return self.looks >= 0

    def add(self, operators: int) -> bool:
        """Whether so many operators may be added; they are then."""
        if operators > self.operators:
            return False
        self.operators -= operators
        return True


def size_of(operators: Iterable[RuntimeOperator]) -> int:
    """How many operators there are, those of bodies included."""
    total, pending = 0, [operators]
    while pending:
        for op in pending.pop():
            total += 1
            if isinstance(op.definition, Bodied):
                pending.extend(body.operators for _, body in op.definition.annotations.bodies)
    return total
