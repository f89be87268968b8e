"""Edges of a running graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.tensor import UNKNOWN, TensorSpec

if TYPE_CHECKING:
    from engine.graph.operator import RuntimeOperator


@dataclass(slots=True, eq=False)
class RuntimeOperand:
    """Value between operators: made once, used any number of times.

    Args:
        name: unique in the graph.
        annotation: shape and dtype the file gives, None where it gives none.
        slot: index in a run's value table.
        value: what is known before a run: a TensorSpec, a Python value, a container of them, or UNKNOWN.
        producer: the operator that makes it.
        consumers: the operators that use it, one entry a use: ``cat(x, x)`` is listed twice.
    """

    name: str
    annotation: TensorSpec | None
    slot: int
    value: object = UNKNOWN
    producer: RuntimeOperator | None = None
    consumers: list[RuntimeOperator] = field(default_factory=list)

    @property
    def spec(self) -> TensorSpec | None:
        """Shape and dtype; None for values that are not tensors or are unknown."""
        return self.value if isinstance(self.value, TensorSpec) else None

    def __repr__(self) -> str:
        return f"RuntimeOperand({self.name!r}, {self.value})"
