"""What in-place operators do to a file's annotations.

The tracer knows one object where a model changes a tensor in place, so ``y.squeeze_(1)`` gives ``y`` as it was before
the shape it has afterwards. The graph computes both, and loses nothing.
"""

from __future__ import annotations

from typing import Final

from engine.graph.operand import RuntimeOperand
from engine.graph.operator import RuntimeOperator
from engine.layers.shape.permute import MatrixTranspose, Transpose
from engine.layers.shape.shape import AsStrided, Reshape, Squeeze, Unsqueeze
from engine.tensor import TensorSpec

_RESHAPING: Final = (Squeeze, Unsqueeze, Transpose, MatrixTranspose, AsStrided, Reshape)
"""squeeze_, unsqueeze_, transpose_ and swapaxes_, t_, strided views, resize_"""

_MAX_STEPS: Final = 64
"""Operators looked at; real models change a tensor in place a few times in a row."""


def is_shape_of_later(operand: RuntimeOperand) -> bool:
    """Whether an operand is annotated as what in-place operators make of it afterwards."""
    waiting = [(operand, False)]
    for _ in range(_MAX_STEPS):
        if not waiting:
            return False
        current, is_reshaped = waiting.pop(0)
        if is_reshaped and _fits(current, operand.annotation):
            return True
        for op in current.consumers:
            if op.inputs[0] is current and len(op.outputs) == 1 and (keeps := _keeps_shape(op)) is not None:
                waiting.append((op.outputs[0], is_reshaped or not keeps))
    return False


def _keeps_shape(op: RuntimeOperator) -> bool | None:
    """Whether an operator, were it in place, leaves its first operand the shape it has; None if it cannot be one."""
    if isinstance(op.definition, _RESHAPING):
        return False
    before, after = op.inputs[0].spec, op.outputs[0].spec
    return True if before is not None and before == after else None


def _fits(operand: RuntimeOperand, annotated: TensorSpec | None) -> bool:
    computed, own = operand.spec, operand.annotation
    if computed is None or annotated is None or own != annotated or computed.dtype != annotated.dtype:
        return False
    dims = zip(computed.shape, annotated.shape, strict=False)
    return computed.rank == annotated.rank and all(a is None or b is None or a == b for a, b in dims)
