"""Where a graph is narrow: all that follows reads one tensor of what was before, and nothing else.

Of pictures of any height and width hardly any comes twice; behind a few strides few sizes are left. What is known of
all that follows a waist is known again for the next tensor of that size.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final, Generic, TypeVar

from engine.graph.operand import RuntimeOperand
from engine.graph.operator import RuntimeOperator
from engine.layers.creation.container import Constant
from engine.recurring import Recurring

V = TypeVar("V")

# Of a waist. Where few sizes are left they are seldom asked for, and must not go for those of many.
MOST_KEPT: Final = 1_500
# What was met once; what is met a second time is kept.
MOST_MET: Final = 10_000


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


class Behind(Generic[V]):
    """What is known of all that follows the waists of a graph, of each apart; one thread at a time.

    Args:
        waists: as ``waists_of`` gives them.
    """

    def __init__(self, waists: Mapping[int, RuntimeOperand]) -> None:
        self._waists = dict(waists)
        self._kept = defaultdict[int, Recurring[object, V]](partial(Recurring, MOST_KEPT, MOST_MET, is_eager=True))

    def __len__(self) -> int:
        return sum(map(len, self._kept.values()))

    def waist(self, number: int) -> RuntimeOperand | None:
        """What is passed on to an operator and those after it, where that is one operand and may tell all."""
        return self._waists.get(number)

    def find(self, number: int, key: object) -> V | None:
        """What follows, by all that decides it."""
        return self._kept[number].find(key)

    def comes_again(self, number: int, key: object) -> bool:
        """Whether what follows is worth keeping."""
        return self._kept[number].comes_again(key)

    def keep(self, number: int, key: object, value: V) -> None:
        """This follows."""
        self._kept[number].keep(key, value)

    def give_up(self, number: int) -> None:
        """Something else decides what follows: look no more."""
        self._waists.pop(number, None)
        self._kept.pop(number, None)

    def clear(self) -> None:
        """Forget what is kept."""
        for each in self._kept.values():
            each.clear()


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
