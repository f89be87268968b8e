"""Which layers have a rule that makes kernels of them, and what such a rule wants of the operands around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from engine.compiler.lowering.steps import Made
from engine.graph.operator import RuntimeOperator
from engine.layers.definition.layer import Layer
from engine.tensor import DType, TensorSpec, dtype_name

if TYPE_CHECKING:
    from engine.compiler.lowering.context import Context

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
Border = tuple[int, int, int, int]
NO_BORDER: Border = (0, 0, 0, 0)


class NotLoweredError(Exception):
    """A rule declines an operator; the text is the reason users read."""


KernelRule = Callable[["Context"], Made]
"""From an operator and what is known around it to what becomes of it; a rule changes nothing."""
BorderWish = Callable[[RuntimeOperator, TensorSpec, TensorSpec], Border]
"""The zeros an operator wants around its first operand; given the static specs of that and of its first result."""
Widening = Callable[[RuntimeOperator, TensorSpec, TensorSpec], Border | None]
"""What of its operand's border an operator takes, None where it does something else; given specs likewise."""
KERNEL_RULES: dict[type[Layer], KernelRule] = {}
FALLBACKS: dict[type[Layer], KernelRule] = {}
"""What is asked where the rule of a layer declines."""
BORDERS: dict[type[Layer], BorderWish] = {}
IMAGE_LAYERS: set[type[Layer]] = set()
SEE_THROUGH: set[type[Layer]] = set()
"""Layers that only choose channels: a border wanted by their users is wanted of their operand."""
WIDENING: dict[type[Layer], Widening] = {}
"""Layers whose result is their operand with some of its border: one wanted by their users is wanted beyond it."""
ROW_LAYERS: set[type[Layer]] = set()
"""Layers that read their operand row by row, however far its rows lie apart."""
DOUBLES: set[KernelRule] = set()
"""Rules that are asked for float64, too, all whose tensors are of the dtype of the result."""


def kernels_for(
    *layers: type[Layer], image: bool = False, rows: bool = False, doubles: bool = False
) -> Callable[[KernelRule], KernelRule]:
    """Decorator: the rule of these very classes, not of those derived from them.

    Args:
        image: they want channels-last operands.
        rows: they read their operand row by row, however far its rows lie apart.
        doubles: the rule makes kernels of float64, too.
    """

    def add(rule: KernelRule) -> KernelRule:
        KERNEL_RULES.update(dict.fromkeys(layers, rule))
        if image:
            IMAGE_LAYERS.update(layers)
        if rows:
            ROW_LAYERS.update(layers)
        if doubles:
            DOUBLES.add(rule)
        return rule

    return add


def computable(spec: TensorSpec | None, *dtypes: DType) -> TensorSpec:
    """The spec of a tensor kernels can compute with.

    Args:
        dtypes: it may be of; float32 if none is named.

    Raises:
        NotLoweredError: it is none of those and static shape, or has no elements.
    """
    if spec is None:
        raise NotLoweredError("its shape is known only in a run")
    if spec.dtype not in (dtypes or (FLOAT32,)):
        raise NotLoweredError(f"there are no {dtype_name(spec.dtype)} kernels")
    if spec.size == 0:
        raise NotLoweredError("it has no elements")
    return spec
