"""Limits of unrolling: files determine trip counts, and subgraphs contain loops.

An unrolled iteration costs about 0.8 ms of compilation an operator, although kernels share their code, and saves 25 µs
or more in every run. Loops with more iterations or larger subgraphs run iteration by iteration.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from engine.graph import RuntimeOperator
from engine.layers.onnx.control.control import Bodied

MOST_TURNS: Final = 64
"""Most iterations of an unrolled loop."""

MOST_ADDED: Final = 2_000
"""Most operators that unrolling adds to a graph, nested subgraphs included."""

MOST_BYTES: Final = 32 << 20
"""Largest weights of a subgraph times its iterations: passes may transform each copy."""

MOST_LOOKS: Final = 4 * MOST_ADDED
"""Most operators analysed, iteration by iteration, to find trip counts."""


@dataclass(slots=True)
class Budget:
    """Remaining budget.

    Args:
        operators: that may be added.
        looks: operators that may be analysed.
    """

    operators: int = MOST_ADDED
    looks: int = MOST_LOOKS

    def turns(self, body: Any) -> int:
        """Return the number of iterations of a subgraph that may be unrolled."""
        most = min(MOST_TURNS, self.operators // max(1, size_of(body.operators)))
        weights = sum(each.data.nbytes for op in body.operators for each in op.attributes.values())
        return min(most, MOST_BYTES // weights) if weights else most

    def look(self, body: Any) -> bool:
        """Return whether all operators of a subgraph may be analysed once more, and charge them."""
        self.looks -= size_of(body.operators)
        return self.looks >= 0

    def add(self, operators: int) -> bool:
        """Return whether this many operators may be added, and charge them."""
        if operators > self.operators:
            return False
        self.operators -= operators
        return True


def size_of(operators: Iterable[RuntimeOperator]) -> int:
    """Return the number of operators, subgraphs included."""
    total, pending = 0, [operators]
    while pending:
        for op in pending.pop():
            total += 1
            if isinstance(op.definition, Bodied):
                pending.extend(body.operators for _, body in op.definition.annotations.bodies)
    return total
