"""Cost limits of constant folding, checked before anything is computed, so that no file makes loading take very long.

The costs are estimates from shapes, and the limits are counts, not times: a file is folded equally on every machine.
"""

from __future__ import annotations

from typing import Final

from engine.expression import Call, Node, postorder
from engine.graph import RuntimeOperator
from engine.layers.creation.container import Expression
from engine.layers.indexing.selection import MaskedSelect, NonZero, NonZeroByAxis
from engine.passes.support.rewriting import bytes_of
from engine.tensor import UNKNOWN, TensorSpec

WORK: Final = 1 << 31
"""Operations and elements that all constants of a graph may take together, in one pass: seconds of numpy."""

WORK_PER_BYTE: Final = 16
"""The same for each byte of stored tensors, if that is more: weights that are assembled before the first run."""

MADE: Final = 1 << 28
"""Most bytes of all constants made in one pass."""

MADE_PER_BYTE: Final = 4
"""The same for each byte of stored tensors, if that is more."""

CALL: Final = 1 << 14
"""Work counted for any call of a layer: what numpy could have computed in its time."""

# The size of their results depends on values, but is never much larger than that of their operands.
_CHOOSING: Final = (MaskedSelect, NonZero, NonZeroByAxis)

SCRATCH: Final = 1 << 28
"""Most intermediate bytes of one of these computations."""


class Budget:
    """Remaining budget for the constants of one graph.

    Args:
        stored: bytes of the graph's stored tensors.
    """

    def __init__(self, stored: int) -> None:
        self._work = max(WORK, WORK_PER_BYTE * stored)
        self._made = max(MADE, MADE_PER_BYTE * stored)

    def spend(self, work: int, made: int) -> bool:
        """Spend work, and bytes of results, if that much is left; return whether it was."""
        if work > self._work or made > self._made:
            return False
        self._work -= work
        self._made -= made
        return True


def work_of(op: RuntimeOperator) -> int | None:
    """Return the operations of an operator and the elements it touches; None if unknown.

    The time of a layer that loops over its operands, and the size of results that depend on values, are unknown.
    """
    if op.layer is None or op.layer.layer.loops:
        return None
    is_dynamic = not all(_is_sized(operand.value) for operand in op.outputs)
    if is_dynamic and not isinstance(op.definition, _CHOOSING):
        return None
    operands, results = ([operand.value for operand in each] for each in (op.inputs, op.outputs))
    first = results[0] if results else None
    try:
        flops = op.layer.flops(first, operands) if isinstance(first, TensorSpec) else 0
        scratch = op.layer.scratch_bytes(first, operands) if isinstance(first, TensorSpec) else 0
    except Exception:  # the layer will refuse these values
        return None
    if isinstance(op.definition, Expression):
        return None if scratch > SCRATCH else work_of_calls(op.definition.tree, bytes_of([*operands, *results]))
    return None if scratch > SCRATCH else CALL + flops + bytes_of([*operands, *results]) // 4 + scratch // 4


def work_of_calls(tree: Node, size: int) -> int:
    """Return the work of an expression over tensors of so many bytes: each call touches all of them."""
    calls = sum(isinstance(node, Call) for node in postorder(tree))
    return (calls + 1) * (CALL + size // 4)


def _is_sized(value: object) -> bool:
    """Return whether the shapes of all tensors in a value are known."""
    if isinstance(value, (tuple, list)):
        return all(map(_is_sized, value))
    return value.is_static if isinstance(value, TensorSpec) else value is not UNKNOWN
