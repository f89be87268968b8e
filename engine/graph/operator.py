"""Nodes of a running graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from engine import pnnx
from engine.graph.operand import RuntimeOperand
from engine.layers import PRECISION, BoundLayer, Layer


@dataclass(slots=True, eq=False)
class RuntimeOperator:
    """One step of the computation, joined to others by its operands.

    Args:
        source: the operator as read from the file.
        inputs, outputs: operands in the file's order.
        layer: computes it; None for the graph's inputs and outputs.
        index: position in the execution order, -1 until ordered.
    """

    source: pnnx.Operator
    inputs: tuple[RuntimeOperand, ...]
    outputs: tuple[RuntimeOperand, ...]
    layer: BoundLayer | None = None
    index: int = field(default=-1)

    @property
    def name(self) -> str:
        """Unique in the graph."""
        return self.source.name

    @property
    def type(self) -> str:
        """The PNNX operator type, such as ``nn.Conv2d``."""
        return self.source.type

    @property
    def definition(self) -> Layer | None:
        """The layer that defines the computation, its dynamic parameters still unknown; None without a layer."""
        return None if self.layer is None else self.layer.layer

    @property
    def params(self) -> Mapping[str, pnnx.Parameter]:
        """Static arguments."""
        return self.source.params

    @property
    def allows_bfloat16(self) -> bool:
        """Return whether kernels may round the factors of its products to bfloat16 in every session."""
        return self.params.get(PRECISION) == "bf16"

    @property
    def attributes(self) -> Mapping[str, pnnx.Attribute]:
        """Weights stored with the operator."""
        return self.source.attributes

    @property
    def successors(self) -> Iterator[RuntimeOperator]:
        """Operators that use an output of this one; one entry a use."""
        for operand in self.outputs:
            yield from operand.consumers

    @property
    def where(self) -> str:
        """Name of the operator in messages: ``conv_12 (nn.Conv2d)``."""
        return f"{self.name} ({self.type})"

    def __repr__(self) -> str:
        return f"RuntimeOperator({self.where})"
