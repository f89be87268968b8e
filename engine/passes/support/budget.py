"""What computing ahead may cost: looked at before anything is computed, so that no file makes loading take for ever.

The costs are estimates from shapes, and the limits counts, not times: the same file is folded alike on every machine.
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
"""The same for each byte of stored tensors, where that is more: weights that are put together before the first run."""

MADE: Final = 1 << 28
"""Bytes that all constants made in one pass may have together."""

MADE_PER_BYTE: Final = 4
"""The same for each byte of stored tensors, where that is more."""

CALL: Final = 1 << 14
"""Work that any call of a layer counts as: what numpy could have computed in its time."""

# Values decide how much they make, but it is never much more than they are given.
_CHOOSING: Final = (MaskedSelect, NonZero, NonZeroByAxis)

SCRATCH: Final = 1 << 28
"""Bytes that one of these computations may lay out on the way."""


class Budget:
    """What is left for the constants of one graph.

    Args:
        stored: bytes of the graph's stored tensors.
    """

    def __init__(self, stored: int) -> None:
        self._work = max(WORK, WORK_PER_BYTE * stored)
        self._made = max(MADE, MADE_PER_BYTE * stored)

    def spend(self, work: int, made: int) -> bool:
        """Whether so much work, and so many bytes of results, were left; they are now spent."""
        if work > self._work or made > self._made:
            return False
        self._work -= work
        self._made -= made
        return True


def work_of(op: RuntimeOperator) -> int | None:
    """Operations of an operator and elements it touches; None if it cannot be told.

    Nothing tells how long a layer takes that loops over its operands, nor how much one makes if values decide it.
    """
    if op.layer is None or op.layer.layer.loops:
        return None
    is_open = not all(_is_sized(operand.value) for operand in op.outputs)
    if is_open and not isinstance(op.definition, _CHOOSING):
        return None
    operands, results = ([operand.value for operand in each] for each in (op.inputs, op.outputs))
    first = results[0] if results else None
    try:
        flops = op.layer.flops(first, operands) if isinstance(first, TensorSpec) else 0
        scratch = op.layer.scratch_bytes(first, operands) if isinstance(first, TensorSpec) else 0
    except Exception:  # an estimate for values that the layer will refuse
        return None
    if isinstance(op.definition, Expression):
        return None if scratch > SCRATCH else work_of_calls(op.definition.tree, bytes_of([*operands, *results]))
    return None if scratch > SCRATCH else CALL + flops + bytes_of([*operands, *results]) // 4 + scratch // 4


def work_of_calls(tree: Node, size: int) -> int:
    """Of an expression over tensors of so many bytes: each call touches as much."""
    calls = sum(isinstance(node, Call) for node in postorder(tree))
    return (calls + 1) * (CALL + size // 4)


def _is_sized(value: object) -> bool:
    """Whether the shapes of all tensors in a value are known."""
    if isinstance(value, (tuple, list)):
        return all(map(_is_sized, value))
    return value.is_static if isinstance(value, TensorSpec) else value is not UNKNOWN
