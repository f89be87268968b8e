"""Where a graph is narrow: all that follows reads one tensor of what was before, and nothing else."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from engine.compiler.storage import View
from engine.graph.operand import RuntimeOperand
from engine.graph.operator import RuntimeOperator
from engine.layers.creation.container import Constant


@dataclass(frozen=True, slots=True)
class Cut:
    """A waist at which a program is made in two parts, of which other programs have the second as well.

    Args:
        key: all that the second part depends on.
        number: of its first operator.
        view: where the tensor lies that it reads.
        steps: how many there were before.
        views: where operands lie that were made before.
        fusions: and how many operators had joined others, by the name of the pass.
    """

    key: object
    number: int
    view: View
    steps: int
    views: Mapping[str, View]
    fusions: Mapping[str, int]


def waists_of(operators: Sequence[RuntimeOperator], outputs: Collection[str]) -> dict[int, RuntimeOperand]:
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
