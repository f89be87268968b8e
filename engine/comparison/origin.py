"""Origins of non-finite values: the operators that made the first NaN and the first infinity of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from engine.comparison.difference import as_numbers
from engine.graph import RuntimeOperand, RuntimeOperator
from engine.graph.port import flatten

Kind = Literal["NaN", "infinity"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NonFiniteOrigin:
    """The first operator whose result holds a NaN, or an infinity, that none of its operands holds.

    Args:
        kind: NaN or infinity.
        index: position of the operator in the execution order.
        operator, type, operand: the operator that makes it, and the result.
        count, size: number of such elements, and of all elements.
        from_infinity: whether a NaN came from operands with infinities: inf - inf, inf * 0.
        in_reference: whether the recorded value has one too; None if none was recorded.
    """

    kind: Kind
    index: int
    operator: str
    type: str
    operand: str
    count: int
    size: int
    from_infinity: bool = False
    in_reference: bool | None = None


def find_origins(
    operators: Sequence[RuntimeOperator], values: Mapping[str, object], reference: Mapping[str, object]
) -> tuple[NonFiniteOrigin, ...]:
    """Return the first NaN and the first infinity of a run, in execution order.

    Args:
        operators: in execution order.
        values: the computed value of every operand.
        reference: recorded values of some of them.
    """
    origins = (_first("NaN", operators, values, reference), _first("infinity", operators, values, reference))
    return tuple(sorted((origin for origin in origins if origin is not None), key=lambda origin: origin.index))


def holds(kind: Kind, value: object) -> int:
    """Count the elements of this kind in a value, or in the tensors of a tuple."""
    return sum(_count(kind, leaf) for leaf in flatten(value))


def _first(
    kind: Kind, operators: Sequence[RuntimeOperator], values: Mapping[str, object], reference: Mapping[str, object]
) -> NonFiniteOrigin | None:
    for op, operand in _made(operators):
        # Infinities among the weights are intended: masks.
        is_constant = not op.inputs and op.type != "pnnx.Input"
        count = holds(kind, values[operand.name])
        if not count or (is_constant and kind == "infinity"):
            continue
        if any(holds(kind, values[each.name]) for each in op.inputs):
            continue
        return NonFiniteOrigin(
            kind=kind,
            index=op.index,
            operator=op.name,
            type=op.type,
            operand=operand.name,
            count=count,
            size=sum(_size(leaf) for leaf in flatten(values[operand.name])),
            from_infinity=kind == "NaN" and any(holds("infinity", values[each.name]) for each in op.inputs),
            in_reference=bool(holds(kind, reference[operand.name])) if operand.name in reference else None,
        )
    return None


def _made(operators: Sequence[RuntimeOperator]) -> Iterator[tuple[RuntimeOperator, RuntimeOperand]]:
    return ((op, operand) for op in operators for operand in op.outputs)


def _count(kind: Kind, leaf: object) -> int:
    array = as_numbers(leaf)
    if array is None or array.dtype.kind in "biu":
        return 0
    return int(np.count_nonzero(np.isnan(array) if kind == "NaN" else np.isinf(array)))


def _size(leaf: object) -> int:
    array = as_numbers(leaf)
    return 0 if array is None else array.size
