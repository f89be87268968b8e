"""Where a graph is narrow: all that follows reads one tensor of what was before, and nothing else.

Of pictures of any height and width hardly any comes twice; behind a few strides few sizes are left. What is known of
all that follows a waist is known again for the next tensor of that size.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from engine.graph.operand import RuntimeOperand
from engine.graph.operator import RuntimeOperator
from engine.layers.creation.container import Constant


class Narrowing:
    """Picks the waists that are worth looking at, one after the other: where pictures become smaller by half.

    Those between tell as many sizes apart.
    """

    def __init__(self) -> None:
        self._pixels = math.inf

    def is_worth(self, shape: Sequence[int | None]) -> bool:
        """Whether a tensor that is passed on is so much smaller than the last that was; asked in order."""
        pixels = math.prod([dim or 0 for dim in shape[2:]])
        if 2 * pixels > self._pixels:
            return False
        self._pixels = pixels
        return True


def waists_of(operators: Sequence[RuntimeOperator], outputs: Collection[str] = ()) -> dict[int, RuntimeOperand]:
    """The only operand, constants aside, that an operator and those after it read of what was made before.

    Args:
        operators: in execution order.
        outputs: names of the operands the graph returns.

    Returns:
        Number of the operator -> that operand, where there is such; what the caller gives is none.
    """
    numbers = {op.name: number for number, op in enumerate(operators)}
    given = max((number for number, op in enumerate(operators) if op.type == "pnnx.Input"), default=-1)
    waists: dict[int, RuntimeOperand] = {}
    alive: list[tuple[int, RuntimeOperand]] = []
    for number, op in enumerate(operators):
        alive = [each for each in alive if each[0] >= number]
        if number > given and len(alive) == 1 and _is_computed(alive[0][1]):
            waists[number] = alive[0][1]
        if not isinstance(op.definition, Constant):
            alive += [(_last_use(each, numbers, outputs), each) for each in op.outputs]
    return waists


def _is_computed(operand: RuntimeOperand) -> bool:
    return operand.producer is not None and operand.producer.type != "pnnx.Input"


def _last_use(operand: RuntimeOperand, numbers: Mapping[str, int], outputs: Collection[str]) -> int:
    """The number of the last operator that reads it; of what the graph returns, one after all."""
    if operand.name in outputs:
        return len(numbers)
    return max((numbers.get(each.name, -1) for each in operand.consumers), default=-1)
