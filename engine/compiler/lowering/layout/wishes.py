"""What layers want of the memory of their operands: zeros around images, channels last, rows side by side."""

from __future__ import annotations

from collections.abc import Callable

from engine.graph.operator import RuntimeOperator
from engine.layers.definition.layer import Layer
from engine.tensor import TensorSpec

Border = tuple[int, int, int, int]
NO_BORDER: Border = (0, 0, 0, 0)
BorderWish = Callable[[RuntimeOperator, TensorSpec, TensorSpec], Border]
"""The zeros an operator wants around its first operand, given the specs of that and of its first result. Where sizes
are symbolic, what one more pixel would want is wanted, too, so that all sizes lie alike."""
Widening = Callable[[RuntimeOperator, TensorSpec, TensorSpec], Border | None]
"""What of its operand's border an operator takes, None where it does something else; given specs likewise."""
BORDERS: dict[type[Layer], BorderWish] = {}
IMAGE_LAYERS: set[type[Layer]] = set()
SEE_THROUGH: set[type[Layer]] = set()
"""Layers that only choose channels: a border wanted by their users is wanted of their operand."""
WIDENING: dict[type[Layer], Widening] = {}
"""Layers whose result is their operand with some of its border: one wanted by their users is wanted beyond it."""
ROW_LAYERS: set[type[Layer]] = set()
"""Layers that read their operand row by row, however far its rows lie apart."""
