"""Which tensors lie channels-last: those that image operators make or use, and what is joined to them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from engine.graph.operand import RuntimeOperand
from engine.graph.operator import RuntimeOperator
from engine.layers.definition.layer import Layer
from engine.tensor import TensorSpec


def find_images(
    operators: Sequence[RuntimeOperator],
    spec_of: Callable[[RuntimeOperand], TensorSpec | None],
    image_layers: Collection[type[Layer]],
    keeps_order: Callable[[RuntimeOperator], bool],
) -> set[str]:
    """Names of operands that should lie channels-last.

    Args:
        image_layers: layers whose operands and results are images.
        keeps_order: whether an operator makes its result in the order its operands lie in.
    """
    found: set[str] = set()

    def may_be(operand: RuntimeOperand) -> bool:
        spec = spec_of(operand)
        return spec is not None and spec.rank in (3, 4, 5)

    for op in operators:
        if type(op.definition) in image_layers:
            found.update(each.name for each in (*op.inputs, *op.outputs) if may_be(each))
    around: dict[str, list[RuntimeOperator]] = {}
    for op in operators:
        if op.layer is not None and keeps_order(op):
            for name in {each.name for each in (*op.inputs, *op.outputs) if may_be(each)}:
                around.setdefault(name, []).append(op)
    reached: set[str] = set()
    pending = list(found)
    while pending:
        for op in around.get(pending.pop(), ()):
            if op.name not in reached:  # each operator once, however the tensors around it are found
                reached.add(op.name)
                alike = {
                    each.name for each in (*op.inputs, *op.outputs) if may_be(each) and _is_like(each, op, spec_of)
                }
                pending.extend(alike - found)
                found |= alike
    return found


def _is_like(
    operand: RuntimeOperand, op: RuntimeOperator, spec_of: Callable[[RuntimeOperand], TensorSpec | None]
) -> bool:
    """Of the operator's own rank: a constant or a row that is broadcast has no order to keep."""
    mine, result = spec_of(operand), spec_of(op.outputs[0])
    return mine is not None and result is not None and mine.rank == result.rank
